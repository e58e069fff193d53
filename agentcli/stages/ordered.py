"""Sorts files of records by task, or by any other key of a line.

The lines are copied as they are, and never held in memory.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import msgspec

from agentcli.records.files import replacing
from agentcli.records.regular import open_regular
from agentcli.records.types import Task

Place = tuple[IO[bytes], int]
"""A file, and where a line of it begins."""


class _Head(msgspec.Struct):
    """The part of a record that sorting needs."""

    task: Task | str


_HEADS = msgspec.json.Decoder(_Head)


def task_of(line: bytes) -> str:
    """The task id of a tree, an episode or a tree's seconds."""
    task = _HEADS.decode(line).task
    return task if isinstance(task, str) else task.id


def write_in_order(
    sources: Sequence[Path],
    keys: Iterable[Hashable],
    out: Path,
    key_of: Callable[[bytes], Hashable] = task_of,
) -> None:
    """Writes the lines of all sources to `out` in the order of their keys.

    Lines of one key keep their order; lines of other keys are left out. `out`, which
    may be a source, appears whole.
    """
    with ExitStack() as stack:
        places: dict[Hashable, list[Place]] = {}
        for source in sources:
            file = stack.enter_context(open_regular(source))
            offset = 0
            for line in file:
                places.setdefault(key_of(line), []).append((file, offset))
                offset += len(line)
        ordered = stack.enter_context(replacing(out))
        for key in keys:
            for origin, offset in places.get(key, ()):
                origin.seek(offset)
                # The last line of a killed writer may lack its newline.
                ordered.write(origin.readline().rstrip(b"\n") + b"\n")
