"""What generated worlds share: repeatable draws, splits of tasks, and invented names."""

import hashlib
import random
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from agentcli.environments.protocol import PLACE
from agentcli.errors import DataError, UsageError
from agentcli.records.files import derive_seed
from agentcli.records.types import Task
from agentcli.registry import nearest

Number = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]

SPLITS = {"train": range(0, 70), "valid": range(70, 80), "test": range(80, 100)}
"""Split -> the texts that it holds, by their numbers."""

STARTS = (
    *("b", "br", "c", "d", "dr", "f", "g", "gr", "h", "k", "kl", "l", "m", "n", "p"),
    *("pr", "qu", "r", "s", "st", "t", "tr", "v", "w", "z"),
)
VOWELS = ("a", "e", "i", "o", "u", "ai", "ei", "ou")
MIDDLES = (
    *("b", "d", "l", "ll", "m", "n", "nd", "r", "rv", "s", "st", "t", "th", "v", "x"),
)


class SplitSizes(msgspec.Struct, kw_only=True, frozen=True):
    """Games of each split, of worlds that draw them one by one."""

    train: Number = 2000
    valid: Number = 100
    test: Number = 200


def indulges(habits: Any, habit: str, episode_seed: int) -> bool:
    """Whether an expert has a habit in this episode, by the share that its field gives."""
    share: float = getattr(habits, habit)
    return _chance(episode_seed, habit) < share


@lru_cache(maxsize=65536)
def _chance(episode_seed: int, habit: str) -> float:
    """A number in [0, 1) that is drawn once per episode and habit."""
    return random.Random(derive_seed(episode_seed, habit)).random()


def strikes(share: float, *occasion: Any) -> bool:
    """True for a fixed `share` of occasions, chosen by hash."""
    # derive_seed is uniform over 64 bits, so this needs no generator of its own.
    return derive_seed(*occasion) < share * 2.0**64


def chosen(
    wanted: Sequence[str] | None, known: Collection[str], option: str, thing: str
) -> list[str]:
    """The names that an option lists, or all of them. Raises UsageError for an unknown."""
    if wanted is None:
        return list(known)
    for name in wanted:
        if name not in known:
            hint = nearest(name, known)
            raise UsageError(f"{PLACE}.{option}: no {thing} {name!r}; {hint}")
    return list(wanted)


def foreign_task(task: Task) -> DataError:
    """The refusal of a task that other settings made, as a panel may hold."""
    return DataError(
        f"task {task.id}: it is none of these environment.options and --data; use "
        "those of its panel"
    )


def drawn_as(task: Task, digest: str) -> tuple[str, int]:
    """The split and the number of a task with the id DIGEST/SPLIT/NUMBER.

    Raises DataError for a task of other settings.
    """
    prefix, _, rest = task.id.partition("/")
    split, _, number = rest.partition("/")
    if prefix != digest or not number.isdecimal():
        raise foreign_task(task)
    return split, int(number)


def spelled(name: str, argument: str) -> str:
    """A call in tokens that stand apart, as a policy of whole words writes it."""
    return f"{name} [ {argument} ]"


def split_number(text: str) -> int:
    """The fixed number of a text, from 0 to 99; each split has a range of them."""
    # hash() of a text differs from process to process.
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") % 100


def split_of(text: str) -> str:
    """The split that a text belongs to."""
    number = split_number(text)
    return next(split for split, numbers in SPLITS.items() if number in numbers)


def invented_names(
    rng: random.Random, taken: set[str], ending: str, number: int
) -> tuple[str, ...]:
    """Names that no model has read about, sorted.

    Each ends with `ending`, or with a random syllable if it is empty. `taken`, in lower
    case, is extended.
    """
    names: list[str] = []
    while len(names) < number:
        parts = [rng.choice(STARTS), rng.choice(VOWELS), rng.choice(MIDDLES)]
        parts.append(ending or rng.choice(VOWELS) + rng.choice("lmnrst"))
        name = "".join(parts).capitalize()
        if name.lower() not in taken:
            taken.add(name.lower())
            names.append(name)
    return tuple(sorted(names))
