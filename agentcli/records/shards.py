"""Shards: the parts of a panel that separate commands play."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

TaskT = TypeVar("TaskT")


class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Part `index` of `count` of a panel; `index` starts at 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def part(self, tasks: Sequence[TaskT]) -> Sequence[TaskT]:
        """Every `count`-th task (or seed), starting with the `index`-th.

        If a panel is sorted by kind, every shard gets the same mixture of kinds.
        """
        return tasks[self.index - 1 :: self.count]


class WholePanel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The panel that a shard is a part of."""

    name: str
    tasks: int
    sha256: str


class ShardExtent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shard that a run played, and the panel it belongs to.

    Stored in the manifest as `statistics.shard`, where `merge` reads it.
    """

    shard: Shard
    panel: WholePanel
