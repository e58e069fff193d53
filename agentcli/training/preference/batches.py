"""A pair of trajectories as one batch for DPO, and which pairs make up which update on
which rank.

A trajectory is one row: its steps one behind the other, each the prompt it was really
sampled on and the response that was really sampled. Position ids start again at every
step and no step sees another, so a response's log-probability is the policy's own in
that step, and their sum is log pi(trajectory). Only response tokens are scored;
prompts, and with them every observation, are masked. (ETO's agents answer in one
growing conversation. Ours are asked anew in every step, with the history inside the
prompt: a conversation made of their steps would be a text that no policy here is ever
asked to continue.)

Shape suffixes: T padded length. The two rows of a batch are chosen, rejected.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from agentcli.errors import DataError
from agentcli.policies.chat import prompt_ids
from agentcli.records.files import derive_seed
from agentcli.records.settings import TrainSettings
from agentcli.records.types import Step
from agentcli.training.loop.distributed import Processes
from agentcli.training.preference.pairs import Pair

Trajectory = list[tuple[list[int], list[int]]]
"""Token ids of prompt and response, step by step."""


class TokenPair(NamedTuple):
    """A pair as token ids."""

    chosen: Trajectory
    rejected: Trajectory

    @property
    def length(self) -> int:
        """Tokens of the longer trajectory, prompts included."""
        return max(
            sum(len(prompt) + len(response) for prompt, response in steps)
            for steps in self
        )


def tokenise_pairs(
    pairs: Iterable[Pair], tokenizer: Any, vocabulary: int, model: str
) -> list[TokenPair]:
    """Prompts through the chat template, each once; responses as they were sampled.
    Raises DataError for a token that `model` does not have.
    """
    prompts: dict[str, list[int]] = {}

    def tokens(pair: Pair, steps: list[Step]) -> Trajectory:
        for step in steps:
            if step.prompt not in prompts:
                prompts[step.prompt] = prompt_ids(tokenizer, step.prompt)
            if not 0 <= min(step.token_ids) <= max(step.token_ids) < vocabulary:
                raise DataError(
                    f"{pair.place}: steps[{step.id}].token_ids: {max(step.token_ids)} "
                    f"is no token of {model} ({vocabulary} tokens); these trees were "
                    "sampled from another model"
                )
        return [(prompts[step.prompt], step.token_ids) for step in steps]

    return [
        TokenPair(tokens(pair, pair.chosen), tokens(pair, pair.rejected))
        for pair in pairs
    ]


def batch_of(pair: TokenPair, pad: int) -> dict[str, Tensor]:
    """input_ids, position_ids, completion_mask and attention_mask, all (2, T), padded
    on the right.

    completion_mask marks the response tokens. Padding has position 0 everywhere: each
    of it is a step of its own.
    """
    batch = {
        "input_ids": torch.full((2, pair.length), pad),
        **{
            name: torch.zeros((2, pair.length), dtype=torch.long)
            for name in ("position_ids", "completion_mask", "attention_mask")
        },
    }
    for row, steps in enumerate(pair):
        end = 0
        for prompt, response in steps:
            start, end = end, end + len(prompt) + len(response)
            batch["input_ids"][row, start:end] = torch.tensor([*prompt, *response])
            batch["position_ids"][row, start:end] = torch.arange(end - start)
            batch["completion_mask"][row, end - len(response) : end] = 1
        batch["attention_mask"][row, :end] = 1
    return batch


class PairUpdate(NamedTuple):
    """One optimiser update: the indices of its pairs."""

    epoch: int
    pairs: list[int]


@dataclass(slots=True)
class PairPlan:
    """Everything that will be run, in order. Microbatch m of rank r is the (m * ranks +
    r)-th pair of the update.
    """

    pairs: list[TokenPair]
    updates: list[PairUpdate]
    processes: Processes
    microbatches_per_update: int
    """On each rank, the same for every update."""
    reference: Tensor = field(default_factory=lambda: torch.zeros(0, 2))
    """Log-probabilities (pairs, 2) of chosen and rejected under the reference."""


def plan_pairs(
    pairs: list[TokenPair], settings: TrainSettings, seed: int, processes: Processes
) -> PairPlan:
    """All updates of all epochs: every epoch shuffles all pairs with a seed of its own
    and cuts them into updates of `rows_per_update`; the last may be smaller.
    """
    size = settings.rows_per_update
    updates = []
    for epoch in range(settings.epochs):
        order = (
            np.random.default_rng(derive_seed("train pairs", seed, epoch))
            .permutation(len(pairs))
            .tolist()
        )
        updates += [
            PairUpdate(epoch, order[start : start + size])
            for start in range(0, len(order), size)
        ]
    return PairPlan(
        pairs, updates, processes, math.ceil(min(size, len(pairs)) / processes.size)
    )


class PairMicrobatches(Dataset[dict[str, Tensor]]):
    """This rank's pairs of all updates but the first `done`, one a microbatch, made
    when asked for.

    An item is `batch_of` the pair with ref_chosen_logps and ref_rejected_logps (1,),
    and share_1: 1 / pairs of the update. Where an update has fewer pairs than
    microbatches an item is a filler of two tokens a side, with share 0.
    """

    def __init__(self, plan: PairPlan, pad: int, done: int = 0) -> None:
        self._plan, self._pad = plan, pad
        processes, slots = (
            plan.processes,
            plan.microbatches_per_update * plan.processes.size,
        )
        self._items = [
            (
                update.pairs[slot] if slot < len(update.pairs) else None,
                1 / len(update.pairs),
            )
            for update in plan.updates[done:]
            for slot in range(processes.rank, slots, processes.size)
        ]

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        pair, share = self._items[index]
        if pair is None:
            nothing = [([self._pad], [self._pad])]
            batch, reference, share = (
                batch_of(TokenPair(nothing, nothing), self._pad),
                torch.zeros(2),
                0.0,
            )
        else:
            batch, reference = (
                batch_of(self._plan.pairs[pair], self._pad),
                self._plan.reference[pair],
            )
        named = {"ref_chosen_logps": reference[:1], "ref_rejected_logps": reference[1:]}
        return {**batch, **named, "share_1": torch.tensor([share])}
