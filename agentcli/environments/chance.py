"""Draws that last for an episode: the habits of experts."""

import random
from functools import lru_cache

from agentcli.records.files import derive_seed


@lru_cache(maxsize=65536)
def chance(episode_seed: int, habit: str) -> float:
    """A number in [0, 1) that is drawn once per episode and habit."""
    return random.Random(derive_seed(episode_seed, habit)).random()
