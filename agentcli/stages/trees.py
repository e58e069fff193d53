"""Reads the trees file given to a stage."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from agentcli.errors import DataError
from agentcli.records.runs import RunDirectory
from agentcli.records.trees import read_trees
from agentcli.records.types import Tree
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


def note_lost_trees(path: Path, held: int, progress: Progress) -> None:
    """Notes if the file has another number of trees than its run's manifest says."""
    fault = RunDirectory(path.parent).lost_trees(held)
    if fault is not None:
        progress.note(f"warning: {path}: {fault}")
