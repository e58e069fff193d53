"""How far credit methods agree on the same trees: correlations over steps, opposite
signs, and where they differ most.

Fed tree by tree, with one Credit per method; what is kept of a step is a number per
method. Up to SAMPLE steps everything is exact; of more a uniform sample of that many is
kept, so memory is bounded. A step with several rows (prefix: duplicate) counts once,
with the mean of its rows by their weights, and a masked one has no advantage; a pair of
methods is compared over the steps to which both give one. Advantages within RESOLUTION
of one another are ties, and within it of 0 zeros: what differs less is float noise.
"""

import random
from array import array
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from agentcli.records.types import Credit, Tree

SAMPLE = 1_000_000
"""Steps that are kept at most: 8 bytes each per method."""
RESOLUTION = 1e-9


class Comparison:
    """Collects trees with their credit, then answers. `names`: of the methods, in the
    order of the credits given to `add`.
    """

    def __init__(
        self, names: Sequence[str], sample: int = SAMPLE, seed: int = 0
    ) -> None:
        self.names = list(names)
        self.steps = 0
        """Steps that were added."""
        self._sample, self._draw = sample, random.Random(seed)
        self._columns = [array("d") for _ in (*names, "line", "step", "kind")]
        self._kinds: dict[str, int] = {}

    def add(self, line: int, tree: Tree, credits: Sequence[Credit]) -> None:
        """One tree (`line` of its file) and what each method gave it."""
        kind = self._kinds.setdefault(tree.task.kind, len(self._kinds))
        columns = [by_step(credit, len(tree.steps)) for credit in credits]
        for step, advantages in enumerate(zip(*columns, strict=True)):
            self.steps += 1
            row = (*advantages, line, step, kind)
            if self.steps <= self._sample:
                for column, value in zip(self._columns, row, strict=True):
                    column.append(value)
                continue
            place = self._draw.randrange(self.steps)
            if place < self._sample:
                for column, value in zip(self._columns, row, strict=True):
                    column[place] = value

    @property
    def kept(self) -> int:
        """Steps that the answers are computed from."""
        return len(self._columns[0])

    def methods(self) -> list[dict[str, Any]]:
        """Per method: steps with an advantage, share of steps without, share of zeros,
        mean and spread (std) of the rest.
        """
        found = []
        for name, column in zip(self.names, self._columns, strict=False):
            values = np.asarray(column)
            given = values[~np.isnan(values)]
            found.append(
                {
                    "method": name,
                    "steps": len(given),
                    "share_masked": 1 - len(given) / max(len(values), 1),
                    "share_zero": float(np.mean(np.abs(given) <= RESOLUTION))
                    if len(given)
                    else None,
                    "mean": float(np.mean(given)) if len(given) else None,
                    "spread": float(np.std(given, ddof=1)) if len(given) > 1 else None,
                }
            )
        return found

    def agreement(self) -> list[dict[str, Any]]:
        """Rows per pair of methods, by task kind and over all of them (kind None).

        A row has the steps to which both give an advantage, Pearson's and Spearman's
        correlation there (None where one of them is constant), the share of opposite
        signs, and that of zeros in one method only.
        """
        values, kinds = (
            dict(zip(self.names, self._values(), strict=True)),
            np.asarray(self._columns[-1]),
        )
        found = []
        for one, other in combinations(self.names, 2):
            both = ~(np.isnan(values[one]) | np.isnan(values[other]))
            parts = [
                (name, both & (kinds == number))
                for name, number in sorted(self._kinds.items())
            ]
            found += [
                {
                    "methods": [one, other],
                    "kind": kind,
                    **_agreement(values[one][part], values[other][part]),
                }
                for kind, part in [*parts, (None, both)]
            ]
        return found

    def disagreements(self, most: int) -> list[dict[str, Any]]:
        """Up to `most` steps where the methods differ most; largest distance first,
        then file order.

        A row has line, step, the advantages by method, and the distance between the
        largest and the smallest of them, each in units of its method's root mean
        square.
        """
        scaled = np.vstack(
            [values / _root_mean_square(values) for values in self._values()]
        )
        given = ~np.isnan(scaled)
        high = np.where(given, scaled, -np.inf).max(axis=0, initial=-np.inf)
        low = np.where(given, scaled, np.inf).min(axis=0, initial=np.inf)
        distance = np.where(given.sum(axis=0) > 1, high - low, 0.0)
        lines, steps = (np.asarray(column) for column in self._columns[-3:-1])
        order = np.lexsort((steps, lines, -distance))[:most]
        return [
            {
                "line": int(lines[place]),
                "step": int(steps[place]),
                "distance": float(distance[place]),
                "advantages": {
                    name: None if np.isnan(column[place]) else column[place]
                    for name, column in zip(self.names, self._columns, strict=False)
                },
            }
            for place in order
            if distance[place] > RESOLUTION
        ]

    def _values(self) -> list["np.ndarray[Any, np.dtype[np.float64]]"]:
        """Per method the advantages by step, NaN for none, with ties made equal
        (rounded to RESOLUTION).
        """
        return [
            np.round(np.asarray(column), 9)
            for column in self._columns[: len(self.names)]
        ]


def by_step(credit: Credit, steps: int) -> list[float]:
    """The advantage of every step: the weighted mean over its rows that have one, NaN
    where there is none.
    """
    totals, weights = [0.0] * steps, [0.0] * steps
    for row in credit.steps:
        if row.advantage is not None:
            totals[row.step] += row.weight * row.advantage
            weights[row.step] += row.weight
    return [
        total / weight if weight else np.nan
        for total, weight in zip(totals, weights, strict=True)
    ]


def pearson(one: Any, other: Any) -> float | None:
    """Pearson's correlation of two columns; None where one is constant, or there are
    fewer than two rows.
    """
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(np.clip(np.corrcoef(one, other)[0, 1], -1.0, 1.0))


def ranks(values: Any) -> Any:
    """Ranks from 1, ties sharing their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _agreement(first: Any, second: Any) -> dict[str, Any]:
    steps = len(first)
    return {
        "steps": steps,
        "pearson": pearson(first, second),
        "spearman": pearson(ranks(first), ranks(second)),
        "share_opposite": float(np.mean(first * second < 0)) if steps else None,
        "share_zero_in_one": float(np.mean((first == 0) != (second == 0)))
        if steps
        else None,
    }


def _root_mean_square(values: Any) -> float:
    """1 where all are 0, or there are none."""
    given = values[~np.isnan(values)]
    return float(np.sqrt(np.mean(given**2))) or 1.0 if len(given) else 1.0
