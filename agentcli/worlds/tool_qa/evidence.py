"""What a text says: whether it states a value, and the value of a property."""

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

TOLERANCE = 1e-5
"""Relative; options show six digits."""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")


def same_number(one: float, other: float) -> bool:
    """Whether two numbers are equal up to rounding."""
    return math.isclose(one, other, rel_tol=TOLERANCE)


def states(text: str, value: str) -> bool:
    """Whether a text holds a value: a number up to rounding, or words."""
    if _NUMBER.fullmatch(value.strip()):
        wanted = float(value)
        numbers = map(float, _NUMBER.findall(text))
        return any(same_number(wanted, number) for number in numbers)
    words = re.escape(value.strip().rstrip("."))
    return re.search(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE) is not None


def stated(texts: Iterable[str], fact: str) -> str | None:
    """The value that one of the texts gives for a fact; None where none does."""
    pattern = _value_of(fact)
    for text in texts:
        match = pattern.search(text)
        if match:
            return match[1] or match[2]
    return None


@lru_cache(maxsize=4096)
def _value_of(fact: str) -> re.Pattern[str]:
    name = re.escape(fact)
    value = r"([\w-]+(?:\.\d+)?)"
    return re.compile(rf"(?<!\w){name} (?:is|=) {value}|There are {value} {name}")


def letters_of(options: Sequence[str], text: str, letters: str) -> list[str]:
    """The letters of the options that a text states."""
    named = []
    for letter, option in zip(letters, options, strict=False):
        if states(text, option):
            named.append(letter)
    return named
