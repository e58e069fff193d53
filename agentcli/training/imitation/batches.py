"""The plan of an imitation run, its batches of samples, and their tensors.

Shape suffixes: B samples, T padded length.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from agentcli.records.training_settings import SftSettings
from agentcli.training.imitation.demonstrations import Sample
from agentcli.training.loop.distributed import Processes
from agentcli.training.loop.forward import pad_rows
from agentcli.training.loop.microbatches import Limit, limit_of, shuffled
from agentcli.training.loop.packing import PackingChoice, choose_packing, sort_key

IGNORED = -100
"""The label of positions without a loss."""
PACKING = "sft.packing"
UPDATES_COMPARED = 64
"""How many updates decide whether packing saves enough; the first are a random sample.
"""

Item = TypeVar("Item")


class SamplePart(NamedTuple):
    """One microbatch and its update."""

    samples: list[Sample]
    update_tokens: int
    """Response tokens of the whole update, over all processes."""


@dataclass(frozen=True)
class ImitationPlan:
    """All microbatches of a training run, in order."""

    samples: Sequence[Sample]
    order: Sequence[int]
    """The index of the sample at each position of the training."""
    per_update: int
    limit: Limit
    processes: Processes
    choice: PackingChoice

    @cached_property
    def microbatches_per_update(self) -> int:
        """Microbatches of each process, the same number in every update."""
        if self.limit.tokens is None:
            return self.per_update // (self.limit.rows * self.processes.size)
        lengths = list(map(self._lengths, _slices(self.order, self.per_update)))
        return self.limit.most(lengths, self.processes.size)

    def batches(self) -> Iterator[list[Sample]]:
        """The microbatches of all processes."""
        count = self.microbatches_per_update * self.processes.size
        for update in _slices(self.order, self.per_update):
            for places in self.limit.dealt(self._lengths(update), count):
                yield [self.samples[update[place]] for place in places]

    def parts(self) -> list[SamplePart]:
        """This process's microbatches: every `processes.size`-th one of an update."""
        parts = []
        ranks = self.processes.size
        count = self.microbatches_per_update * ranks
        for update in _slices(list(self.batches()), count):
            tokens = sum(len(sample.response) for batch in update for sample in batch)
            of_this_rank = update[self.processes.rank :: ranks]
            parts += [SamplePart(batch, tokens) for batch in of_this_rank]
        return parts

    def length(self, number: int) -> int:
        """Prompt plus response of a sample, in tokens."""
        sample = self.samples[number]
        return len(sample.prompt) + len(sample.response)

    def _lengths(self, numbers: Sequence[int]) -> list[int]:
        """The tokens of each of these samples."""
        return [self.length(number) for number in numbers]

    def packed_as_set(self, wanted: str, model: Any) -> "ImitationPlan":
        """The plan, packed if sft.packing (`wanted`) asks for it.

        Raises UsageError for `on` with a model that cannot be packed.
        """
        first = replace(self, order=self.order[: UPDATES_COMPARED * self.per_update])
        choice = choose_packing(
            PACKING, wanted, model, first.batches(), first._by_tokens().batches()
        )
        plan = self._by_tokens() if choice.packing else self
        return replace(plan, choice=choice)

    def _by_tokens(self) -> "ImitationPlan":
        """The plan with the samples of each update sorted by their tokens."""
        return self.sorted_by(lambda number: sort_key(self.samples[number]))

    def sorted_by(self, key: Callable[[int], Any]) -> "ImitationPlan":
        """The plan with the samples of each update sorted by a key of their numbers."""
        order: list[int] = []
        for update in _slices(self.order, self.per_update):
            order += sorted(update, key=key)
        return replace(self, order=order)


def _slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def plan_imitation(
    samples: Sequence[Sample],
    updates: int,
    settings: SftSettings,
    seed: int,
    processes: Processes,
) -> ImitationPlan:
    """Plans passes over the samples, each in a new random order.

    An update may use the end of one pass and the beginning of the next.
    """
    places = updates * settings.samples_per_update
    order: list[int] = []
    while len(order) < places:
        passes = len(order) // len(samples)
        order += shuffled(len(samples), "sft samples", seed, passes)
    limit = limit_of(settings)
    plan = ImitationPlan(
        samples,
        order[:places],
        settings.samples_per_update,
        limit,
        processes,
        PackingChoice(None),
    )
    return plan if limit.tokens is None else plan.sorted_by(plan.length)


def collate(samples: Sequence[Sample], pad: int) -> dict[str, Tensor]:
    """Right-padded input_ids, labels and attention_mask, all (B, T), as TRL expects.

    Prompt and padding have the label IGNORED.
    """
    ids_BT, response_BT = pad_rows(samples, pad)
    lengths = [len(prompt) + len(response) for prompt, response in samples]
    lengths_B1 = torch.tensor(lengths)[:, None]
    positions_T = torch.arange(max(lengths))
    mask_BT = positions_T < lengths_B1
    return {
        "input_ids": ids_BT,
        "labels": ids_BT.masked_fill(~response_BT, IGNORED),
        "attention_mask": mask_BT.long(),
    }
