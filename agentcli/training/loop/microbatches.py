"""The order of an epoch, and microbatches, as shared by all training plans.

A microbatch is limited by its rows, or by its tokens with padding: rows x the longest
of them. Rows that are sorted by length then fill the device alike, short or long.
"""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from agentcli.records.files import derive_seed
from agentcli.records.training_settings import SftSettings, TrainSettings

Part = TypeVar("Part")


def shuffled(count: int, *seed: int | str) -> list[int]:
    """The numbers below `count` in a random order that is determined by the seed."""
    generator = np.random.default_rng(derive_seed(*seed))
    order: list[int] = generator.permutation(count).tolist()
    return order


class Limit(NamedTuple):
    """What a microbatch may hold."""

    rows: int
    tokens: int | None = None
    """Most tokens with padding, in the place of `rows`. A longer row is run alone."""

    def cut(self, lengths: Sequence[int]) -> list[list[int]]:
        """The places of rows with these lengths, in as few microbatches as possible.

        Each holds neighbours.
        """
        parts: list[list[int]] = []
        longest = 0
        for place, length in enumerate(lengths):
            longest = max(longest, length)
            if parts and self._holds(len(parts[-1]) + 1, longest):
                parts[-1].append(place)
            else:
                parts.append([place])
                longest = length
        return parts

    def most(self, updates: Sequence[Sequence[int]], ranks: int) -> int:
        """How many microbatches a rank needs in the update that needs most."""
        return max((-(-len(self.cut(one)) // ranks) for one in updates), default=1)

    def _holds(self, rows: int, longest: int) -> bool:
        if self.tokens is None:
            return rows <= self.rows
        return rows * longest <= self.tokens

    def dealt(self, lengths: Sequence[int], count: int) -> list[list[int]]:
        """The places in exactly `count` microbatches, of which some may be empty.

        Without a limit to tokens each holds the same number of rows. With one, where
        fewer would do, the one with most tokens is halved.
        """
        if self.tokens is None:
            places = np.array_split(np.arange(len(lengths)), count)
            return [part.tolist() for part in places]

        def padded(part: list[int]) -> int:
            return len(part) * max(lengths[place] for place in part)

        parts = self.cut(lengths)
        while len(parts) < min(count, len(lengths)):
            fullest = max((part for part in parts if len(part) > 1), key=padded)
            half = len(fullest) // 2
            place = parts.index(fullest)
            parts[place : place + 1] = fullest[:half], fullest[half:]
        return parts + [[] for _ in range(count - len(parts))]


def limit_of(settings: TrainSettings | SftSettings) -> Limit:
    """The limit that the settings of a training give."""
    if isinstance(settings, SftSettings):
        return Limit(settings.samples_per_microbatch, settings.tokens_per_microbatch)
    return Limit(settings.rows_per_microbatch, settings.tokens_per_microbatch)


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
