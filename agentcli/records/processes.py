"""What this process is among others, and what those that it starts inherit."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


def rank() -> int:
    """The rank among those that torchrun started for one command, from 0; alone: 0."""
    return _announced("RANK", 0)


def process_count() -> int:
    """How many processes there are."""
    return _announced("WORLD_SIZE", 1)


def search_path() -> str:
    """PYTHONPATH of another process of this Python, so that it imports as this one."""
    return os.pathsep.join(map(os.path.abspath, sys.path))


@contextmanager
def environ_with(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def how_ended(code: int) -> str:
    """What a process ended with: a signal's name, or its status."""
    return signal.Signals(-code).name if code < 0 else f"status {code}"


def _announced(variable: str, alone: int) -> int:
    number = os.environ.get(variable, "")
    return int(number) if number.isdecimal() else alone
