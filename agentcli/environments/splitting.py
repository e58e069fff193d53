"""Splits of generated questions: a text belongs to one, whatever the settings."""

from agentcli.environments.chance import split_number

SPLITS = {"train": range(0, 70), "valid": range(70, 80), "test": range(80, 100)}
"""Split -> the texts that it holds, by their numbers."""


def split_of(text: str) -> str:
    """The split that a text belongs to."""
    number = split_number(text)
    return next(split for split, numbers in SPLITS.items() if number in numbers)
