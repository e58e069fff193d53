"""The rank of this process among those that torchrun started for one command."""

import os


def rank() -> int:
    """The rank of this process, from 0; 0 if it is the only one."""
    return _announced("RANK", 0)


def process_count() -> int:
    """How many processes there are."""
    return _announced("WORLD_SIZE", 1)


def _announced(variable: str, alone: int) -> int:
    number = os.environ.get(variable, "")
    return int(number) if number.isdecimal() else alone
