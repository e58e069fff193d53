"""Invented names, for worlds that no model has read about."""

import random

STARTS = (
    *("b", "br", "c", "d", "dr", "f", "g", "gr", "h", "k", "kl", "l", "m", "n", "p"),
    *("pr", "qu", "r", "s", "st", "t", "tr", "v", "w", "z"),
)
VOWELS = ("a", "e", "i", "o", "u", "ai", "ei", "ou")
MIDDLES = (
    *("b", "d", "l", "ll", "m", "n", "nd", "r", "rv", "s", "st", "t", "th", "v", "x"),
)


def invented_names(
    rng: random.Random, taken: set[str], ending: str, number: int
) -> tuple[str, ...]:
    """Names that nothing else has, sorted.

    They end with `ending`, or where it is empty with a syllable of their own. `taken`
    holds the names that there are, in lower case; the new ones are added.
    """
    names: list[str] = []
    while len(names) < number:
        parts = [rng.choice(STARTS), rng.choice(VOWELS), rng.choice(MIDDLES)]
        name = "".join(parts) + (ending or rng.choice(VOWELS) + rng.choice("lmnrst"))
        name = name.capitalize()
        if name.lower() not in taken:
            taken.add(name.lower())
            names.append(name)
    return tuple(sorted(names))
