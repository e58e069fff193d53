"""How far credit methods agree on the same trees.

One number per step and method is stored. Up to SAMPLE steps the figures are exact; beyond
that a uniform sample of SAMPLE steps is kept, so memory is bounded.

A step with several rows (prefix: duplicate) counts once, with the weighted mean of its
rows. A masked step has no advantage. Two methods are compared over the steps to which
both give an advantage. What lies within RESOLUTION is a tie, and counts as 0 beside 0:
methods divide by a spread with an epsilon of 1e-6, some of them twice.
"""

import random
from array import array
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentcli.records.step_rows import advantages
from agentcli.records.types import Credit, Tree

SAMPLE = 1_000_000
"""The most steps that are kept, at 8 bytes per step and method."""
RESOLUTION = 1e-5
"""Advantages that lie apart by no more are equal."""
Column = NDArray[np.float64]
"""One number per step that is kept."""


class ComparedMethod(msgspec.Struct, kw_only=True):
    """The advantages of one method, and where they came from."""

    method: str
    steps: int
    """Steps with an advantage."""
    share_masked: float
    """Share of the steps without an advantage."""
    share_zero: float | None
    mean: float | None
    spread: float | None
    file: str | None = None
    """The credit file that was read; None where the credit was computed now."""
    settings: dict[str, Any] = {}
    """The switches that differ from the method's defaults."""


class Agreement(msgspec.Struct, kw_only=True):
    """How far two methods agree over the steps to which both give an advantage."""

    methods: list[str]
    kind: str | None
    """The kind of the tasks; None for all kinds."""
    steps: int
    pearson: float | None
    """None where one of the two methods is constant."""
    spearman: float | None
    share_opposite: float | None
    share_zero_in_one: float | None


class Disagreement(msgspec.Struct, kw_only=True):
    """A step where the methods differ a lot."""

    task: str = ""
    kind: str = ""
    line: int
    step: int
    distance: float
    """Largest minus smallest advantage, each in units of its method's root mean square.
    """
    advantages: dict[str, float | None]
    action: str | None = None


class CreditComparison(msgspec.Struct, kw_only=True):
    """The answer to `agentcli credit compare`."""

    steps: int
    kept: int
    """The number of steps that the figures are computed from."""
    methods: list[ComparedMethod]
    agreement: list[Agreement]
    disagreements: list[Disagreement]


class Comparison:
    """Collects trees with their credit, then compares the methods.

    `names` are the methods, in the order of the credits given to `add`.
    """

    def __init__(
        self,
        names: Sequence[str],
        sample: int = SAMPLE,
        seed: int = 0,
    ) -> None:
        self.names = list(names)
        self.steps = 0
        """The number of steps that were added."""
        self._sample = sample
        self._draw = random.Random(seed)
        self._advantages = [array("d") for _ in names]
        # Doubles hold every line and step number exactly, and one column is like
        # another.
        self._lines = array("d")
        self._step_ids = array("d")
        self._kind_numbers = array("d")
        self._kinds: dict[str, int] = {}

    def add(
        self,
        line: int,
        tree: Tree,
        credits: Sequence[Credit],
    ) -> None:
        """Adds one tree (`line` of its file) with the credit of each method."""
        kind = self._kinds.setdefault(tree.task.kind, len(self._kinds))
        columns = (*self._advantages, self._lines, self._step_ids, self._kind_numbers)
        advantages_by_method = [by_step(credit, len(tree.steps)) for credit in credits]
        for step, given in enumerate(zip(*advantages_by_method, strict=True)):
            self.steps += 1
            row = (*given, line, step, kind)
            if self.steps <= self._sample:
                for column, value in zip(columns, row, strict=True):
                    column.append(value)
                continue
            # Reservoir sampling: every step is kept with the same probability.
            place = self._draw.randrange(self.steps)
            if place < self._sample:
                for column, value in zip(columns, row, strict=True):
                    column[place] = value

    @property
    def kept(self) -> int:
        """The number of steps that the answers are computed from."""
        return len(self._lines)

    def answer(self, most: int) -> CreditComparison:
        """The comparison over the trees so far, with up to `most` disagreements."""
        return CreditComparison(
            steps=self.steps,
            kept=self.kept,
            methods=self.methods(),
            agreement=self.agreement(),
            disagreements=self.disagreements(most),
        )

    def methods(self) -> list[ComparedMethod]:
        """One entry per method, over the steps to which it gives an advantage."""
        rows = []
        for name, column in zip(self.names, self._advantages, strict=True):
            values = np.asarray(column)
            given = values[~np.isnan(values)]
            row = ComparedMethod(
                method=name,
                steps=len(given),
                share_masked=1 - len(given) / max(len(values), 1),
                share_zero=_mean(np.abs(given) <= RESOLUTION),
                mean=_mean(given),
                spread=float(np.std(given, ddof=1)) if len(given) > 1 else None,
            )
            rows.append(row)
        return rows

    def agreement(self) -> list[Agreement]:
        """One entry per pair of methods and task kind; kind None is over all kinds."""
        kind_numbers = np.asarray(self._kind_numbers)
        columns = dict(zip(self.names, self._columns(), strict=True))
        rows = []
        for first, second in combinations(self.names, 2):
            both = ~(np.isnan(columns[first]) | np.isnan(columns[second]))
            parts: dict[str | None, NDArray[np.bool_]] = {}
            for name, number in sorted(self._kinds.items()):
                parts[name] = both & (kind_numbers == number)
            parts[None] = both
            for kind, part in parts.items():
                one = columns[first][part]
                other = columns[second][part]
                row = Agreement(
                    methods=[first, second],
                    kind=kind,
                    steps=len(one),
                    pearson=pearson(one, other),
                    spearman=pearson(ranks(one), ranks(other)),
                    share_opposite=_mean(one * other < 0),
                    share_zero_in_one=_mean((one == 0) != (other == 0)),
                )
                rows.append(row)
        return rows

    def disagreements(self, most: int) -> list[Disagreement]:
        """Up to `most` steps where the methods differ most, without their texts.

        Sorted by distance (largest minus smallest scaled advantage), largest first;
        ties stay in file order.
        """
        columns = self._columns()
        # Divided without centring, so that 0 stays 0 whatever the mean of a method is.
        scaled = np.vstack([column / _root_mean_square(column) for column in columns])
        given = ~np.isnan(scaled)
        # np.nanmax would warn at a step to which no method gives an advantage.
        high = np.where(given, scaled, -np.inf).max(axis=0, initial=-np.inf)
        low = np.where(given, scaled, np.inf).min(axis=0, initial=np.inf)
        distances = np.where(given.sum(axis=0) > 1, high - low, 0.0)
        lines = np.asarray(self._lines)
        step_ids = np.asarray(self._step_ids)
        # The last key is the first to sort by.
        order = np.lexsort((step_ids, lines, -distances))
        rows = []
        for place in order[:most]:
            # They are sorted by distance: all that follow agree, too.
            if distances[place] <= RESOLUTION:
                break
            advantages = {}
            for name, column in zip(self.names, self._advantages, strict=True):
                masked = np.isnan(column[place])
                advantages[name] = None if masked else column[place]
            row = Disagreement(
                line=int(lines[place]),
                step=int(step_ids[place]),
                distance=float(distances[place]),
                advantages=advantages,
            )
            rows.append(row)
        return rows

    def _columns(self) -> list[Column]:
        """The advantages by method and step, with noise as 0; NaN where there is none."""
        columns = map(np.asarray, self._advantages)
        return [np.where(np.abs(each) <= RESOLUTION, 0.0, each) for each in columns]


def by_step(credit: Credit, steps: int) -> list[float]:
    """The advantage of every step; NaN where there is none."""
    assigned = advantages(credit)
    known = (assigned.get(step) for step in range(steps))
    return [np.nan if value is None else value for value in known]


def pearson(first: Column, second: Column) -> float | None:
    """Pearson's correlation of two columns.

    None where one is constant, or there are fewer than two rows.
    """
    if len(first) < 2 or min(np.ptp(first), np.ptp(second)) <= RESOLUTION:
        return None
    correlation = np.corrcoef(first, second)[0, 1]
    return float(np.clip(correlation, -1.0, 1.0))


def ranks(values: Column) -> Column:
    """Ranks from 1; ties, within RESOLUTION of the next, get their mean rank."""
    order = np.argsort(values)
    steps_up = np.diff(values[order], prepend=-np.inf) > RESOLUTION
    # The number of each value's group of ties, from the lowest on.
    groups = np.empty(len(values), dtype=np.int64)
    groups[order] = np.cumsum(steps_up) - 1
    counts = np.bincount(groups)
    mean_ranks: Column = np.cumsum(counts) - (counts - 1) / 2
    return mean_ranks[groups]


def _mean(values: NDArray[Any]) -> float | None:
    """The mean; None for an empty array."""
    return float(np.mean(values)) if len(values) else None


def _root_mean_square(values: Column) -> float:
    """The root mean square of a method's advantages; 1 where it is 0 or undefined."""
    given = values[~np.isnan(values)]
    mean_square = _mean(given**2)
    return float(np.sqrt(mean_square)) if mean_square else 1.0
