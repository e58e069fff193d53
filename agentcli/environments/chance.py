"""Repeatable random draws: the habits of experts, and the splits of generated tasks."""

import hashlib
import random
from functools import lru_cache
from typing import Any

from agentcli.records.files import derive_seed

SPLITS = {"train": range(0, 70), "valid": range(70, 80), "test": range(80, 100)}
"""Split -> the texts that it holds, by their numbers."""


@lru_cache(maxsize=65536)
def chance(episode_seed: int, habit: str) -> float:
    """A number in [0, 1) that is drawn once per episode and habit."""
    return random.Random(derive_seed(episode_seed, habit)).random()


def strikes(share: float, *occasion: Any) -> bool:
    """Whether a mistake made on this share of all occasions is made on this one."""
    return derive_seed(*occasion) < share * 2.0**64


def split_number(text: str) -> int:
    """The fixed number of a text, from 0 to 99; each split has a range of them."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") % 100


def split_of(text: str) -> str:
    """The split that a text belongs to."""
    number = split_number(text)
    return next(split for split, numbers in SPLITS.items() if number in numbers)
