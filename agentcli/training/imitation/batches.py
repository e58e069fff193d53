"""Samples of imitation as batches: their order over a training, and their tensors.

Shape suffixes: B samples, T padded length.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from agentcli.training.imitation.demonstrations import Sample
from agentcli.training.loop.distributed import Processes
from agentcli.training.loop.forward import pad_rows
from agentcli.training.loop.microbatches import shuffled

IGNORED = -100
"""The label of a position that is not learned."""


def sample_order(samples: int, places: int, seed: int) -> list[int]:
    """The sample at each place of a whole training: shuffled pass after shuffled pass.

    An update may take the end of one pass and the beginning of the next.
    """
    order: list[int] = []
    while len(order) < places:
        passes = len(order) // samples
        order += shuffled(samples, "sft samples", seed, passes)
    return order[:places]


def microbatches(
    order: Sequence[int],
    size: int,
    processes: Processes,
) -> list[list[int]]:
    """The microbatches of this rank: every `processes.size`-th slice of `order`."""
    starts = range(processes.rank * size, len(order), size * processes.size)
    return [list(order[start : start + size]) for start in starts]


def collate(samples: Sequence[Sample], pad: int) -> dict[str, Tensor]:
    """Right-padded input_ids, labels and attention_mask, all (B, T).

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
