"""What this process is among others, and what those that it starts inherit."""

import os
import signal
import sys


def rank() -> int:
    """The rank among those that torchrun started for one command, from 0; alone: 0."""
    return _announced("RANK", 0)


def process_count() -> int:
    """How many processes there are."""
    return _announced("WORLD_SIZE", 1)


def search_path() -> str:
    """PYTHONPATH of another process of this Python, so that it imports as this one."""
    return os.pathsep.join(map(os.path.abspath, sys.path))


def how_ended(code: int) -> str:
    """What a process ended with: a signal's name, or its status."""
    return signal.Signals(-code).name if code < 0 else f"status {code}"


def _announced(variable: str, alone: int) -> int:
    number = os.environ.get(variable, "")
    return int(number) if number.isdecimal() else alone
