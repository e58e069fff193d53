"""Compares scores within a group. Everything is float64."""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from agentcli.credit.switches import Normalise
from agentcli.records.grouping import grouped

EPSILON = 1e-6
"""Added to every standard deviation before dividing by it."""
SMALLEST_STD = 1e-4
"""A group with a smaller std gets advantage 0: of outcomes, such a spread is float noise.

RewardFlow's gains may truly differ by less, in states many hops away from a success.
"""
Entry = tuple[int, float, float]
"""One member of a group: id of its step or leaf, score, weight."""


@dataclass(slots=True)
class Scale:
    """Turns a score of a group into an advantage: (score - center) * factor."""

    center: float
    factor: float
    weight: float = 1.0
    """Sum of the weights of the group."""
    std: float | None = None
    """Of the scores; None where the weight is at most 1."""

    def __call__(self, score: float) -> float:
        # Adding 0.0 turns -0.0 into 0.0.
        return (score - self.center) * self.factor + 0.0


def scale_of(
    entries: Iterable[Entry],
    how: str,
    smallest_std: float = SMALLEST_STD,
) -> Scale:
    """The normalisation of a group's scores, where W is the sum of the weights.

        mean = sum(w x) / W        std = sqrt(sum(w (x - mean)^2) / (W - 1))

    `how`: std divides by it, mean does not, leave-one-out compares with the mean of
    the others. Integer weights act as repetitions and give the usual ddof-1 estimate. A
    group of weight 1 or less, or with a std below `smallest_std`, gets factor 0.
    """
    group = [(score, weight) for _, score, weight in entries if weight > 0]
    if not group:
        return Scale(0.0, 0.0, 0.0)
    if len(group) == 1 and group[0][1] == 1:
        # From most states of a tree only one step is taken: they need no sums.
        return Scale(group[0][0], 0.0)
    total = math.fsum([weight for _, weight in group])
    mean = math.fsum([weight * score for score, weight in group]) / total
    # Weights 1 / T add up to 1 but for rounding.
    if total <= 1 + 1e-9:
        return Scale(mean, 0.0, total)
    squares = math.fsum([weight * (score - mean) ** 2 for score, weight in group])
    # ddof 1, as torch.std has it by default.
    std = math.sqrt(squares / (total - 1))
    if std < smallest_std:
        return Scale(mean, 0.0, total, std)
    factor = 1.0
    if how == "std":
        factor = 1.0 / (std + EPSILON)
    elif how == "leave-one-out":
        # R_i - (W mean - R_i) / (W - 1) = (R_i - mean) * W / (W - 1)
        factor = total / (total - 1)
    return Scale(mean, factor, total, std)


def division(scale: str | None) -> Normalise:
    """The `normalise` value for a method's `scale`: std for std, mean for none."""
    return "std" if scale == "std" else "mean"


class Grouping:
    """Entries grouped by key; each is compared with the entries of the same key."""

    def __init__(
        self,
        keys: Sequence[Hashable],
        entries: Sequence[Entry],
        normalise: str,
    ) -> None:
        self.entries = entries
        self.normalise = normalise
        self._keys = keys
        self._members = grouped(zip(keys, entries, strict=True))
        self.scales: dict[Hashable, Scale] = {}
        for key, group in self._members.items():
            self.scales[key] = self._scale(group)

    def compared(self, place: int) -> float:
        """The score of the entry at `place`, compared within its group."""
        _, score, _ = self.entries[place]
        return self.scales[self._keys[place]](score)

    def _scale(self, group: list[Entry]) -> Scale:
        """The normalisation of one group."""
        return scale_of(group, self.normalise)

    def among(self, place: int) -> tuple[list[Entry], int, Scale]:
        """The group of the entry at `place`, the entry's position in it, and its scale.

        Members of weight 0 are left out.
        """
        key = self._keys[place]
        group = self._members[key]
        index = list(self._keys[:place]).count(key)
        position = sum(weight > 0 for _, _, weight in group[:index])
        members = [entry for entry in group if entry[2] > 0]
        return members, position, self.scales[key]
