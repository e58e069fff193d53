"""The batch of a pair of trajectories for DPO, and the pairs of each update and rank.

A trajectory is one row: its steps are concatenated, each with the prompt and response
that were really sampled. Position ids restart at every step and steps do not attend to
each other, so a response's log-probability is the policy's own in that step, and their
sum is log pi(trajectory). Only response tokens are scored; prompts, and with them all
observations, are masked.

ETO's agents answer in one growing conversation. Ours get a new prompt at every step,
with the history inside: a conversation built from their steps would be a text that no
policy here is ever asked to continue.

Shape suffixes: T padded length. The two rows of a batch are chosen, rejected.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.distributed import Processes
from agentcli.training.loop.microbatches import Microbatches, shuffled
from agentcli.training.loop.pictures import refuse_pictures
from agentcli.training.loop.tokens import StepTokeniser
from agentcli.training.preference.pairs import Pair

Trajectory = list[tuple[list[int], list[int]]]
"""Token ids of prompt and response for each step."""


class TokenPair(NamedTuple):
    """A pair as token ids."""

    chosen: Trajectory
    rejected: Trajectory

    @property
    def length(self) -> int:
        """Length of the longer trajectory in tokens, prompts included."""
        lengths = []
        for steps in self:
            lengths.append(sum(len(prompt) + len(answer) for prompt, answer in steps))
        return max(lengths)


def tokenise_pairs(pairs: Iterable[Pair], tokenise: StepTokeniser) -> list[TokenPair]:
    """The pairs as token ids. Raises DataError for a token that the model lacks."""
    token_pairs = []
    for pair in pairs:
        token_pair = TokenPair([], [])
        for steps, tokens in zip((pair.chosen, pair.rejected), token_pair, strict=True):
            for step in steps:
                place = f"{pair.place}: steps[{step.id}]"
                refuse_pictures(step.pictures, place, "train.objective dpo")
                tokens.append(tokenise(step.prompt, step.token_ids, place))
        token_pairs.append(token_pair)
    return token_pairs


def batch_of(pair: TokenPair, pad: int) -> dict[str, Tensor]:
    """input_ids, position_ids, completion_mask, attention_mask: all (2, T), int64.

    Rows are padded on the right. completion_mask marks the response tokens. Padding has
    position 0 everywhere, so each padding token counts as a separate step.
    """
    ids_2T = torch.full((2, pair.length), pad)
    positions_2T = torch.zeros_like(ids_2T)
    response_2T = torch.zeros_like(ids_2T)
    mask_2T = torch.zeros_like(ids_2T)
    for row, steps in enumerate(pair):
        start = 0
        for prompt, response in steps:
            middle = start + len(prompt)
            end = middle + len(response)
            ids_2T[row, start:end] = torch.tensor([*prompt, *response])
            positions_2T[row, start:end] = torch.arange(end - start)
            response_2T[row, middle:end] = 1
            mask_2T[row, start:end] = 1
            start = end
    return {
        "input_ids": ids_2T,
        "position_ids": positions_2T,
        "completion_mask": response_2T,
        "attention_mask": mask_2T,
    }


class PairUpdate(NamedTuple):
    """One optimiser update: the indices of its pairs."""

    epoch: int
    pairs: list[int]


@dataclass(slots=True)
class PairPlan:
    """All updates of a training, in order.

    Microbatch m of rank r is the pair with index m * ranks + r in the update.
    """

    pairs: list[TokenPair]
    updates: list[PairUpdate]
    processes: Processes
    microbatches_per_update: int
    """Microbatches per rank, the same number in every update."""
    reference: Tensor = field(default_factory=lambda: torch.zeros(0, 2))
    """Log-probabilities (pairs, 2) of chosen and rejected under the reference."""


def plan_pairs(
    pairs: list[TokenPair],
    settings: TrainSettings,
    seed: int,
    processes: Processes,
) -> PairPlan:
    """Plans all updates of all epochs.

    Every epoch shuffles all pairs with its own seed and cuts them into updates of
    `rows_per_update`; the last may be smaller.
    """
    size = settings.rows_per_update
    updates = []
    for epoch in range(settings.epochs):
        order = shuffled(len(pairs), "train pairs", seed, epoch)
        for start in range(0, len(order), size):
            updates.append(PairUpdate(epoch, order[start : start + size]))
    microbatches_per_update = math.ceil(min(size, len(pairs)) / processes.size)
    return PairPlan(pairs, updates, processes, microbatches_per_update)


Part = tuple[PairUpdate, int]
"""An update, and the index of one of its pairs."""


def microbatches(plan: PairPlan, pad: int, done: int = 0) -> Microbatches[Part]:
    """This rank's pairs of all updates after the first `done`, one per microbatch."""
    processes = plan.processes
    places = range(plan.microbatches_per_update * processes.size)
    parts = [
        (update, place)
        for update in plan.updates[done:]
        for place in places[processes.rank :: processes.size]
    ]
    return Microbatches(parts, partial(collate, plan, pad))


def collate(plan: PairPlan, pad: int, part: Part) -> dict[str, Tensor]:
    """The tensors of `batch_of` for one pair, and further inputs of the loss.

    ref_chosen_logps and ref_rejected_logps are (1,), and share_1 is 1 / pairs of the
    update.
    """
    update, place = part
    if place < len(update.pairs):
        pair = update.pairs[place]
        batch = batch_of(plan.pairs[pair], pad)
        reference_2 = plan.reference[pair]
        share = 1 / len(update.pairs)
    else:
        # Every rank needs a forward pass: two tokens per side, which do not count.
        filler = [([pad], [pad])]
        batch = batch_of(TokenPair(filler, filler), pad)
        reference_2 = torch.zeros(2)
        share = 0.0
    batch["ref_chosen_logps"] = reference_2[:1]
    batch["ref_rejected_logps"] = reference_2[1:]
    batch["share_1"] = torch.tensor([share])
    return batch
