"""The order of an epoch, and microbatches, as shared by all training plans."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from agentcli.records.files import derive_seed

Part = TypeVar("Part")


def shuffled(count: int, *seed: int | str) -> list[int]:
    """The numbers below `count` in a random order that is determined by the seed."""
    generator = np.random.default_rng(derive_seed(*seed))
    order: list[int] = generator.permutation(count).tolist()
    return order


class Microbatches(Dataset[dict[str, Tensor]], Generic[Part]):
    """One rank's microbatches. `collate` builds each one on demand."""

    def __init__(
        self, parts: Sequence[Part], collate: Callable[[Part], dict[str, Tensor]]
    ) -> None:
        self._parts = parts
        self._collate = collate

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self._collate(self._parts[index])
