"""The words of `agentcli compare`: each is one side, of one run or of several.

It is apart from sides.py, which takes a second to load and is not needed for one run.
"""

from glob import glob, has_magic
from pathlib import Path
from typing import NamedTuple

from agentcli.errors import DataError, UsageError
from agentcli.records.regular import is_there


class Side(NamedTuple):
    """What stands on one side of a comparison."""

    name: str
    """As it was typed."""
    runs: list[Path]


def read_side(typed: Path) -> Side:
    """The side that a word names: a run, a list with commas, or a pattern.

    Raises UsageError for a word that is no list, and for one that can be read in two
    ways; DataError for a pattern without a run directory.
    """
    name = str(typed)
    parts = name.split(",")
    if len(parts) == 1 and not has_magic(name):
        return Side(name, [typed])
    found = [_runs_of(part) for part in parts]
    runs = [run for of_part in found for run in of_part]
    if is_there(typed):
        others = [run for run in runs if run != typed]
        if others and all(found) and all(map(is_there, others)):
            raise UsageError(
                f"{name}: is a run, and also means {', '.join(map(str, others))}; "
                "rename that run"
            )
        return Side(name, [typed])
    for part, of_part in zip(parts, found, strict=True):
        if not part:
            raise UsageError(
                f"{name}: a run is missing beside a comma; write runs/a-0,runs/a-1"
            )
        if not of_part:
            raise DataError(f"{part}: no run directory matches")
    return Side(name, runs)


def _runs_of(part: str) -> list[Path]:
    """The run directories of one part of a list, in the order of their names."""
    if has_magic(part):
        return [path for path in map(Path, sorted(glob(part))) if path.is_dir()]
    return [Path(part)] if part else []
