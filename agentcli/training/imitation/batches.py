"""The plan of an imitation run, its batches of samples, and their tensors.

Shape suffixes: B samples, T padded length.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from agentcli.records.training_settings import SftSettings
from agentcli.training.imitation.demonstrations import Sample
from agentcli.training.loop.distributed import Processes
from agentcli.training.loop.forward import pad_rows
from agentcli.training.loop.microbatches import shuffled
from agentcli.training.loop.packing import sort_key
from agentcli.training.loop.packing_choice import PackingChoice, choose_packing

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
    per_microbatch: int
    choice: PackingChoice

    def batches(self) -> Iterator[list[Sample]]:
        """The microbatches of all processes."""
        for numbers in _slices(self.order, self.per_microbatch):
            yield [self.samples[number] for number in numbers]

    def parts(self, processes: Processes) -> list[SamplePart]:
        """This process's microbatches: every `processes.size`-th one of an update."""
        parts = []
        for update in _slices(
            list(self.batches()), self.per_update // self.per_microbatch
        ):
            tokens = sum(len(sample.response) for batch in update for sample in batch)
            of_this_rank = update[processes.rank :: processes.size]
            parts += [SamplePart(batch, tokens) for batch in of_this_rank]
        return parts

    def packed_as_set(self, wanted: str, model: Any) -> "ImitationPlan":
        """The plan, packed if sft.packing (`wanted`) asks for it.

        Raises UsageError for `on` with a model that cannot be packed.
        """
        first = replace(self, order=self.order[: UPDATES_COMPARED * self.per_update])
        choice = choose_packing(
            PACKING, wanted, model, first.batches(), first._sorted().batches()
        )
        plan = self._sorted() if choice.packing else self
        return replace(plan, choice=choice)

    def _sorted(self) -> "ImitationPlan":
        """The plan with the samples of each update sorted by their tokens."""
        order: list[int] = []
        for update in _slices(self.order, self.per_update):
            order += sorted(update, key=lambda number: sort_key(self.samples[number]))
        return replace(self, order=order)


def _slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def plan_imitation(
    samples: Sequence[Sample], updates: int, settings: SftSettings, seed: int
) -> ImitationPlan:
    """Plans passes over the samples, each in a new random order.

    An update may use the end of one pass and the beginning of the next.
    """
    places = updates * settings.samples_per_update
    order: list[int] = []
    while len(order) < places:
        passes = len(order) // len(samples)
        order += shuffled(len(samples), "sft samples", seed, passes)
    return ImitationPlan(
        samples,
        order[:places],
        settings.samples_per_update,
        settings.samples_per_microbatch,
        PackingChoice(None),
    )


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
