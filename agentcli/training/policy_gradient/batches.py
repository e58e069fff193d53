"""The plan of a training: which rows make up which update and microbatch, on which
rank, with which weights.

Every epoch shuffles all rows with a seed of its own and cuts them into updates of
`rows_per_update`; the last may be smaller. Rows that cannot have a gradient stay
members of their update (their weight counts in its normaliser) but are not run. An
update of nothing but such rows is left out: it would be an optimiser step without a
signal.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from agentcli.errors import UsageError
from agentcli.records.files import derive_seed
from agentcli.records.settings import TrainSettings
from agentcli.training.loop.distributed import Processes
from agentcli.training.loop.forward import pad_rows
from agentcli.training.policy_gradient.losses import token_weights
from agentcli.training.policy_gradient.rows import Row


@dataclass(slots=True)
class Tokens:
    """The token side of all rows. Flat tensors hold the response tokens of row r at
    offsets[r]:offsets[r + 1].
    """

    prompts: list[list[int]]
    responses: list[list[int]]
    offsets: list[int]
    old: Tensor
    """Log-probabilities that the ratio is taken against: the sampler's, or the
    trainer's own where they are recomputed.
    """
    reference: Tensor | None = None
    sampled: Tensor | None = None
    """The sampler's log-probabilities where `old` are not; None: they are."""
    temperature: Tensor | None = None
    """T of softmax(logits / T), the distribution that tokens were sampled from; None: 1
    everywhere.
    """
    sampled_temperature: Tensor | None = None
    """T of the distribution that the sampler's log-probabilities are of; None:
    `temperature`.
    """

    def pad(self, rows: Sequence[int], pad: int) -> tuple[Tensor, Tensor]:
        """Input ids and response mask (B, T) of these rows."""
        return pad_rows([(self.prompts[row], self.responses[row]) for row in rows], pad)

    def gather(self, flat: Tensor, rows: Sequence[int]) -> Tensor:
        """The response tokens' values (N,) of these rows."""
        return torch.cat(
            [flat[self.offsets[row] : self.offsets[row + 1]] for row in rows]
        )

    def gathered(
        self, flats: Sequence[Tensor | None], rows: Sequence[int]
    ) -> list[Tensor | None]:
        """`gather` of each; None stays None."""
        return [None if flat is None else self.gather(flat, rows) for flat in flats]

    def scatter(self, flat: Tensor, rows: Sequence[int], values_N: Tensor) -> None:
        """The reverse of gather: put the values of these rows' response tokens into
        `flat`.
        """
        start = 0
        for row in rows:
            end = start + len(self.responses[row])
            flat[self.offsets[row] : self.offsets[row + 1]] = values_N[start:end]
            start = end

    def chunks(self, rows: Sequence[int], size: int) -> list[list[int]]:
        """`rows` by length, in chunks of at most `size`."""
        order = sorted(rows, key=self.length)
        return [order[start : start + size] for start in range(0, len(order), size)]

    def length(self, row: int) -> int:
        """Prompt and response tokens."""
        return len(self.prompts[row]) + len(self.responses[row])


@dataclass(slots=True)
class Update:
    """One optimiser update."""

    epoch: int
    rows: list[int]
    """All members."""
    weights: dict[int, float]
    """Weight per token of each member that is run."""
    microbatches: list[list[int]]
    """Members that are run, for all ranks: microbatch m of rank r is the (m * ranks +
    r)-th. Some may be empty.
    """


@dataclass(slots=True)
class UpdatePlan:
    """Everything that will be run, in order."""

    rows: Sequence[Row]
    tokens: Tokens
    updates: list[Update]
    skipped: int
    """Updates left out because nothing in them has a gradient."""
    processes: Processes
    microbatches_per_update: int
    """On each rank, the same for every update."""


def plan_updates(
    rows: Sequence[Row],
    tokens: Tokens,
    settings: TrainSettings,
    seed: int,
    processes: Processes,
) -> UpdatePlan:
    """All updates of all epochs."""
    largest = min(settings.rows_per_update, len(rows))
    microbatches = math.ceil(largest / (settings.rows_per_microbatch * processes.size))
    plan = UpdatePlan(rows, tokens, [], 0, processes, microbatches)
    for epoch in range(settings.epochs):
        order = (
            np.random.default_rng(derive_seed("train rows", seed, epoch))
            .permutation(len(rows))
            .tolist()
        )
        for start in range(0, len(order), settings.rows_per_update):
            members = order[start : start + settings.rows_per_update]
            weights = _weights(rows, members, settings)
            if weights:
                parts = _split(
                    sorted(weights, key=tokens.length), microbatches * processes.size
                )
                plan.updates.append(Update(epoch, members, weights, parts))
            else:
                plan.skipped += 1
    return plan


def _weights(
    rows: Sequence[Row], members: list[int], settings: TrainSettings
) -> dict[int, float]:
    """The weight per token of each member that can have a gradient."""
    if settings.aggregate is None:
        raise UsageError(
            "train.aggregate: names none here, where no method is known; set step, "
            "token or sequence"
        )
    token_weight = token_weights(
        settings.aggregate,
        torch.tensor([len(rows[row].token_ids) for row in members]),
        torch.tensor([rows[row].weight for row in members]),
        torch.tensor([rows[row].share for row in members], dtype=torch.float64),
    ).tolist()
    weights: dict[int, float] = {}
    for row, weight in zip(members, token_weight, strict=True):
        # Without a KL penalty a row of advantage 0 has no gradient.
        if weight and (settings.beta != 0 or rows[row].advantage):
            weights[row] = weight
    return weights


def _split(kept: list[int], parts: int) -> list[list[int]]:
    """`kept` in `parts` contiguous parts, as even as can be; the first ones are longer."""
    size, longer = divmod(len(kept), parts)
    cuts = [part * size + min(part, longer) for part in range(parts + 1)]
    return [kept[start:end] for start, end in pairwise(cuts)]


class Microbatches(Dataset[dict[str, Tensor]]):
    """This rank's microbatches of all updates but the first `done`, made when asked
    for; every update has the same number.

    An item holds ids_BT, response_BT (bool) and, for the N response tokens in row-major
    order, old_N, advantages_N, weights_N, counted_N (1, or 0 in the filler of an empty
    microbatch, which repeats one row with weight 0), reference_N when there is a
    reference, sampled_N when `old` is not the sampler's, temperature_N when not all are
    1, sampled_temperature_N when the sampler's log-probabilities are at another, and
    rows_1, the number of rows.
    """

    def __init__(self, plan: UpdatePlan, pad: int, done: int = 0) -> None:
        self._rows = plan.rows
        self._tokens = plan.tokens
        self._pad = pad
        of_this_rank = slice(plan.processes.rank, None, plan.processes.size)
        self._items = [
            (update, part)
            for update in plan.updates[done:]
            for part in update.microbatches[of_this_rank]
        ]

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        update, part = self._items[index]
        members = part or [next(iter(update.weights))]
        counted = float(bool(part))
        lengths = torch.tensor([len(self._tokens.responses[row]) for row in members])
        ids_BT, response_BT = self._tokens.pad(members, self._pad)
        weights_B = torch.tensor(
            [update.weights[row] * counted for row in members], dtype=torch.float32
        )
        item = {
            "ids_BT": ids_BT,
            "response_BT": response_BT,
            "old_N": self._tokens.gather(self._tokens.old, members),
            "advantages_N": torch.tensor(
                [self._rows[row].advantage for row in members]
            ).repeat_interleave(lengths),
            "weights_N": weights_B.repeat_interleave(lengths),
            "counted_N": torch.full((int(lengths.sum()),), counted),
            "rows_1": torch.tensor([len(part)]),
        }
        for name in ("reference", "sampled", "temperature", "sampled_temperature"):
            flat = getattr(self._tokens, name)
            if flat is not None:
                item[f"{name}_N"] = self._tokens.gather(flat, members)
        return item
