"""Shards: parts of a panel that are walked by separate commands."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

TaskT = TypeVar("TaskT")


class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Part `index` of `count` of a panel, counted from 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def part(self, tasks: Sequence[TaskT]) -> Sequence[TaskT]:
        """Every `count`-th task.

        So all parts meet the same mixture of tasks where a panel is sorted by kind.
        """
        return tasks[self.index - 1 :: self.count]


class WholePanel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The panel that a shard is a part of."""

    name: str
    tasks: int
    sha256: str


class ShardExtent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which shard of which panel a run is.

    It stands in the manifest as `statistics.shard`, where `merge` reads it.
    """

    shard: Shard
    panel: WholePanel
