"""Processes that tests start."""

import os
import sys


def as_here() -> dict[str, str]:
    """The environment of a process that imports what this one can."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
