"""Processes that tests start."""

import os
import sys
from pathlib import Path


def as_here() -> dict[str, str]:
    """The environment of a process that imports what this one can."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


def below(process: int) -> list[int]:
    """The children of a process, and theirs."""
    children = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        children += [int(child) for child in file.read_text(encoding="ascii").split()]
    return [*children, *(one for child in children for one in below(child))]
