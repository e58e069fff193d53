"""Samples of imitation as batches: their order over a whole training, and the tensors
of a microbatch.

Shape suffixes: B samples, T padded length.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from agentcli.records.files import derive_seed
from agentcli.training.imitation.demonstrations import Sample
from agentcli.training.loop.distributed import Processes

IGNORED = -100
"""The label of a position that is not learned."""


def sample_order(samples: int, places: int, seed: int) -> list[int]:
    """Which sample stands at which place of a whole training: pass after pass over all
    samples, each shuffled with a seed of its own; an update may take the end of one
    pass and the beginning of the next.
    """
    order: list[int] = []
    while len(order) < places:
        number = len(order) // samples
        order += (
            np.random.default_rng(derive_seed("sft samples", seed, number))
            .permutation(samples)
            .tolist()
        )
    return order[:places]


def microbatches(
    order: Sequence[int], size: int, processes: Processes
) -> list[list[int]]:
    """The microbatches of this rank: every `processes.size`-th of those that `order` is
    cut into.
    """
    starts = range(processes.rank * size, len(order), size * processes.size)
    return [list(order[start : start + size]) for start in starts]


def collate(samples: Sequence[Sample], pad: int) -> dict[str, Tensor]:
    """Right-padded input_ids, labels and attention_mask, all (B, T). Prompt and padding
    have the label IGNORED.
    """
    lengths = [len(sample.prompt) + len(sample.response) for sample in samples]
    shape = (len(samples), max(lengths))
    ids_BT = torch.full(shape, pad)
    labels_BT = torch.full(shape, IGNORED)
    mask_BT = torch.zeros(shape, dtype=torch.long)
    for row, (sample, length) in enumerate(zip(samples, lengths, strict=True)):
        ids_BT[row, :length] = torch.tensor([*sample.prompt, *sample.response])
        labels_BT[row, len(sample.prompt) : length] = torch.tensor(sample.response)
        mask_BT[row, :length] = 1
    return {"input_ids": ids_BT, "labels": labels_BT, "attention_mask": mask_BT}


class SampleMicrobatches(Dataset[dict[str, Tensor]]):
    """Microbatches of samples, each made when it is asked for."""

    def __init__(
        self, samples: Sequence[Sample], parts: Sequence[Sequence[int]], pad: int
    ) -> None:
        self._samples = samples
        self._parts = parts
        self._pad = pad

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return collate(
            [self._samples[number] for number in self._parts[index]], self._pad
        )
