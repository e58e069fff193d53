"""The answers of the questions that only a program computes."""

from collections.abc import Callable

Numbers = dict[str, int]
"""The slots of a question, by their letters."""


def digit_sum(slots: Numbers) -> int:
    """The sum of the digits of a to the power of e."""
    return sum(map(int, str(slots["a"] ** slots["e"])))


def ones(slots: Numbers) -> int:
    """How many ones the binary form of a * b * c has."""
    return (slots["a"] * slots["b"] * slots["c"]).bit_count()


def multiples(slots: Numbers) -> int:
    """How many numbers below a * b are multiples of c or d."""
    total = 0
    for number in range(1, slots["a"] * slots["b"]):
        total += number % slots["c"] == 0 or number % slots["d"] == 0
    return total


PROGRAMS: dict[str, Callable[[Numbers], int]] = {
    "digit sum": digit_sum,
    "ones": ones,
    "multiples": multiples,
}
"""By the name of the template."""
