"""Reads the trees file given to a stage, and sorts files of records by a key of a line.

Lines are sorted by task, or by any other key. They are copied unchanged, and the file
is never in memory as a whole.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from os import SEEK_END
from pathlib import Path
from typing import IO, BinaryIO

import msgspec

from agentcli.errors import DataError
from agentcli.records.faults import UNREADABLE, fault_in, is_torn
from agentcli.records.files import replacing
from agentcli.records.regular import open_regular
from agentcli.records.runs import RunDirectory
from agentcli.records.trees import read_trees
from agentcli.records.types import Task, Tree
from agentcli.reports.standing import Progress


def checked_trees(
    path: Path, writer: str = "rollout", file: BinaryIO | None = None
) -> Iterator[tuple[int, Tree]]:
    """Streams the trees of a file with their lines, validating each.

    They come from `file` if `path` is open already. `writer` is the command that the
    error names for a file without trees. Raises DataError for such a file, and for a
    damaged one.
    """
    line = 0
    for line, tree in read_trees(path, file):
        yield line, tree
    if line == 0:
        raise DataError(
            f"{path}: holds no trees; write some with: agentcli {writer} --resume -o "
            f"{path.parent}"
        )


def count_trees(path: Path) -> int:
    """The number of trees in a file. Raises what `checked_trees` raises."""
    return sum(1 for _ in checked_trees(path, "rollout (or demos)"))


def note_lost_trees(path: Path, held: int | None, progress: Progress) -> None:
    """Notes if trees are still to come, or are not the number of the run's manifest.

    In a folder without one, if the last line was only partly written.
    """
    try:
        fault = RunDirectory(path.parent).lost_trees(held)
    except DataError as error:
        # The trees are sound; only the manifest beside them cannot be read.
        progress.note(f"warning: {error}")
        return
    if fault is None and _ends_torn(path):
        fault = "its last line was only partly written; that tree is left out"
    if fault is not None:
        progress.note(f"warning: {path}: {fault}")


def _ends_torn(path: Path) -> bool:
    """Whether the last tree of a file is not whole."""
    with open_regular(path) as file:
        length = file.seek(0, SEEK_END)
        file.seek(max(0, length - 1))
        if file.read() in (b"", b"\n"):
            return False
        file.seek(0)
        (last,) = deque(file, maxlen=1)
        return is_torn(last, _HEADS)


Place = tuple[IO[bytes], int]
"""A file, and the offset of a line in it."""


class _Head(msgspec.Struct):
    """The part of a record that is needed for sorting."""

    task: Task | str
    seed: int = 0


_HEADS = msgspec.json.Decoder(_Head)


def task_of(line: bytes) -> str:
    """The task id of a tree, an episode or a tree's seconds."""
    task = _HEADS.decode(line).task
    return task if isinstance(task, str) else task.id


def episode_of(line: bytes) -> tuple[int, str]:
    """The seed and the task id of a tree: a demonstration may repeat a task."""
    return _HEADS.decode(line).seed, task_of(line)


def write_in_order(
    sources: Sequence[Path],
    keys: Iterable[Hashable],
    out: Path,
    key_of: Callable[[bytes], Hashable] = task_of,
    *,
    last: bool = False,
) -> None:
    """Writes the lines of all sources to `out` in the order of their keys.

    Lines with the same key keep their order, or only the `last` of them is written.
    Lines with other keys and a torn last line are left out. `out`, which may be a
    source, appears complete. Raises DataError for a damaged line.
    """
    with ExitStack() as stack:
        places: dict[Hashable, list[Place]] = {}
        for source in sources:
            file = stack.enter_context(open_regular(source))
            for key, offset in _keyed(file, source, key_of):
                places.setdefault(key, []).append((file, offset))
        ordered = stack.enter_context(replacing(out))
        for key in keys:
            lines = places.get(key, [])
            # Offsets and not lines are kept: a file of trees may be larger than the
            # memory.
            for origin, offset in lines[-1:] if last else lines:
                origin.seek(offset)
                # The last line of a killed writer may have no newline.
                ordered.write(origin.readline().rstrip(b"\n") + b"\n")


def _keyed(
    file: IO[bytes], source: Path, key_of: Callable[[bytes], Hashable]
) -> Iterator[tuple[Hashable, int]]:
    """The key and the offset of each line."""
    offset = 0
    for number, line in enumerate(file, 1):
        # Only the last line can be torn; one that is whole but for its newline is kept.
        if not line.endswith(b"\n") and is_torn(line, _HEADS):
            return
        try:
            if not line.isspace():
                yield key_of(line), offset
        except UNREADABLE as error:
            fault = fault_in(error, line)
            raise DataError(f"{source}:{number}: {fault}") from error
        offset += len(line)
