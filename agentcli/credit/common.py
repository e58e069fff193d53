"""What all credit methods share: the switches, the group of leaves with its normalisation, the rows, the statistics.

The group of a tree is its leaves; errored ones are left out of every statistic. Everything is float64 and walks the steps in
order of their ids, where a parent comes before its children: no recursion, so depth is no limit, and one pass costs O(steps).
Sums are math.fsum, hence independent of the order of siblings. What a method makes of the group is in its own file.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from agentcli.errors import UsageError
from agentcli.records.settings import Section
from agentcli.records.trees import leaves, path
from agentcli.records.types import Credit, Outcome, Step, Tree, Validity

EPSILON = 1e-6
"""Added to every standard deviation before dividing by it."""
SMALLEST_STD = 1e-4
"""A group that spreads less gets advantage 0: what is left of it is float noise."""
ERRORED = "errored"
"""Why a step without a leaf that counts has no advantage."""


class Switches(Section, kw_only=True):
    """The switches every method has, under one name each. `over` and `prefix` follow `form` unless they are set.

    Raises UsageError naming the field that is out of range.
    """

    form: Literal["paper", "release"] = "paper"
    """paper: the paper's definition. release: what the authors' code computes."""
    success_reward: float = 1.0
    """Outcome reward R of a success; every other outcome has 0."""
    invalid_penalty: float = 0.1
    """Taken from a malformed or inadmissible step's own score before normalisation."""
    normalise: Literal["std", "mean"] = "std"
    """std: (x - mean) / (std + 1e-6), ddof 1. mean: x - mean."""
    over: Literal["trajectories", "steps"] | None = None
    """Whether every trajectory counts once (paper) or every step row (release: long trajectories weigh more)."""
    prefix: Literal["merge", "duplicate"] | None = None
    """A step shared by several leaves: one row with the mean over its leaves (paper) or one row per leaf (release)."""

    def __post_init__(self) -> None:
        release = self.form == "release"
        self.over = self.over or ("steps" if release else "trajectories")
        self.prefix = self.prefix or ("duplicate" if release else "merge")
        require(0 < self.success_reward < math.inf, "success_reward", self.success_reward, "finite and above 0")
        require(0 <= self.invalid_penalty < math.inf, "invalid_penalty", self.invalid_penalty, "finite and at least 0")


def require(holds: bool, field: str, value: object, what: str) -> None:
    """Raise UsageError that names the field, unless `holds`."""
    if not holds:
        raise UsageError(f"{field}: must be {what}, is {value!r}")


@dataclass(frozen=True)
class Scale:
    """How a score of a group becomes an advantage: (score - center) * factor."""

    center: float
    factor: float

    def __call__(self, score: float) -> float:
        return (score - self.center) * self.factor + 0.0


def scale_of(entries: Iterable[tuple[float, float]], normalise: str, smallest_std: float = SMALLEST_STD) -> Scale:
    """Normalisation of a group given as (score, weight) entries, with W the sum of the weights:

        mean = sum(w x) / W        std = sqrt(sum(w (x - mean)^2) / (W - 1))

    Integer weights are repetitions and give the usual ddof-1 estimate. A group of weight 1 or less, or with a std below
    `smallest_std`, gets factor 0.
    """
    group = [(score, weight) for score, weight in entries if weight > 0]
    total = math.fsum(weight for _, weight in group)
    if total == 0:
        return Scale(0.0, 0.0)
    mean = math.fsum(weight * score for score, weight in group) / total
    if total <= 1 + 1e-9:
        return Scale(mean, 0.0)
    std = math.sqrt(math.fsum(weight * (score - mean) ** 2 for score, weight in group) / (total - 1))
    if std < smallest_std:
        return Scale(mean, 0.0)
    return Scale(mean, 1.0 / (std + EPSILON) if normalise == "std" else 1.0)


@dataclass(frozen=True)
class LeafGroup:
    """The leaves of a tree as a GRPO group. Lists are indexed by step id."""

    leaves: list[int]
    """Leaves below the step that count; 0 where all of them errored."""
    rewards: list[float]
    """Mean outcome reward over those leaves (0 where there is none)."""
    penalties: list[float]
    """The step's own penalty, 0 or invalid_penalty."""
    scale: Scale

    def advantage(self, step: int, reward: float) -> float:
        """Normalised score of a row: outcome reward `reward`, less the step's penalty."""
        return self.scale(reward - self.penalties[step])


def invalid(step: Step) -> bool:
    """Malformed or inadmissible."""
    return step.validity is not Validity.VALID


def live_leaves(tree: Tree) -> list[int]:
    """Per step: the number of leaves below it (itself included) that did not error."""
    return _below(tree, lambda step: step.outcome not in (None, Outcome.ERRORED))


def group_of(tree: Tree, switches: Switches) -> LeafGroup:
    """Mean and std of the group of leaves, with the penalty inside the baseline.

    With R_i the outcome reward, T_i the steps and k_i the invalid steps of trajectory i, G trajectories, penalty p, the row of
    step t of trajectory i scores x_it = R_i - p [step t invalid] and weighs w_i:

        over = trajectories:  w_i = 1 / T_i      (W = G: every trajectory counts once)
        over = steps:         w_i = 1            (W = sum T_i); with prefix = merge a shared step is one row

        mean = sum w_i x_it / W     std^2 = sum w_i (x_it - mean)^2 / (W - 1)     A_it = (x_it - mean) / (std + 1e-6)

    so the weighted sum of all advantages is 0 even where nobody succeeded, and without invalid steps over = trajectories is
    GRPO (002 eq. 8) to the letter. A merged step has the mean of its leaves' A_it. One trajectory alone: 0.
    The release takes R_i less the penalty of the *first* step once per trajectory (over = trajectories), and leaves a group of
    one such row as it is (mean 0, std 1).
    """
    counts = live_leaves(tree)
    successes = _below(tree, lambda step: step.outcome is Outcome.SUCCESS)
    rewards = [switches.success_reward * won / max(all_, 1) for won, all_ in zip(successes, counts, strict=True)]
    penalties = [switches.invalid_penalty * invalid(step) for step in tree.steps]
    alive = [step for step in leaves(tree) if counts[step.id]]
    entries = _entries(tree, switches, alive, counts, rewards, penalties)
    if switches.form == "release" and len(entries) == 1:
        scale = Scale(0.0, 1.0 / (1.0 + EPSILON) if switches.normalise == "std" else 1.0)
    elif switches.form == "paper" and len(alive) <= 1:
        scale = Scale(0.0, 0.0)
    else:
        plain_difference = switches.form == "release" and switches.normalise == "mean"
        scale = scale_of(entries, switches.normalise, 0.0 if plain_difference else SMALLEST_STD)
    return LeafGroup(counts, rewards, penalties, scale)


def rows(tree: Tree, group: LeafGroup, prefix: str | None) -> Iterator[tuple[int, float | None]]:
    """The training rows as (step id, outcome reward); reward None where every leaf below errored.

    merge: every step once, in order of ids. duplicate: leaf by leaf, root first; errored steps once, with the first leaf.
    """
    if prefix == "merge":
        for step in tree.steps:
            yield step.id, group.rewards[step.id] if group.leaves[step.id] else None
        return
    masked: set[int] = set()
    for leaf in leaves(tree):
        for step in path(tree, leaf):
            if group.leaves[leaf.id]:
                yield step.id, group.rewards[leaf.id]
            elif not group.leaves[step.id] and step.id not in masked:
                masked.add(step.id)
                yield step.id, None


def _below(tree: Tree, counts: Callable[[Step], bool]) -> list[int]:
    found = [int(counts(step)) for step in tree.steps]
    for step in reversed(tree.steps):
        if step.parent is not None:
            found[step.parent] += found[step.id]
    return found


def _entries(
    tree: Tree, switches: Switches, alive: list[Step], counts: list[int], rewards: list[float], penalties: list[float]
) -> list[tuple[float, float]]:
    """The group as (score, weight) pairs; see group_of."""
    if switches.over == "steps" and switches.prefix == "merge":
        return [(rewards[step.id] - penalties[step.id], 1.0) for step in tree.steps if counts[step.id]]
    first, length, wrong = [0.0] * len(counts), [1] * len(counts), [0] * len(counts)
    for step in tree.steps:
        above = step.parent
        first[step.id] = penalties[step.id] if above is None else first[above]
        length[step.id] = 1 if above is None else length[above] + 1
        wrong[step.id] = invalid(step) + (0 if above is None else wrong[above])
    if switches.over == "trajectories" and switches.form == "release":
        return [(rewards[leaf.id] - first[leaf.id], 1.0) for leaf in alive]
    entries = []
    for leaf in alive:
        unit = 1.0 / length[leaf.id] if switches.over == "trajectories" else 1.0
        entries.append((rewards[leaf.id], unit * (length[leaf.id] - wrong[leaf.id])))
        if wrong[leaf.id]:
            entries.append((rewards[leaf.id] - switches.invalid_penalty, unit * wrong[leaf.id]))
    return entries


class CreditStatistics:
    """Running summary of the credit of many trees (Welford), for the manifest."""

    def __init__(self) -> None:
        self._trees = self._without_success = self._all_equal = 0
        self._rows = self._masked = self._zero = 0
        self._mean = self._squares = 0.0

    def add(self, tree: Tree, credit: Credit) -> None:
        """Count one tree and its credit."""
        outcomes = [leaf.outcome for leaf in leaves(tree) if leaf.outcome is not Outcome.ERRORED]
        successes = sum(outcome is Outcome.SUCCESS for outcome in outcomes)
        self._trees += 1
        self._without_success += successes == 0
        self._all_equal += successes in (0, len(outcomes))
        for row in credit.steps:
            self._rows += 1
            if row.advantage is None:
                self._masked += 1
                continue
            self._zero += row.advantage == 0.0
            step = row.advantage - self._mean
            self._mean += step / (self._rows - self._masked)
            self._squares += step * (row.advantage - self._mean)

    def summary(self) -> dict[str, Any]:
        """Mean, spread (std, ddof 1) and share of exact zeros over assigned rows; share of masked rows over all rows; trees
        in which nobody succeeded; trees whose outcome rewards are all equal. Null where there is nothing to average."""
        assigned = self._rows - self._masked
        return {
            "trees": self._trees,
            "rows": self._rows,
            "mean": self._mean if assigned else None,
            "spread": math.sqrt(self._squares / (assigned - 1)) if assigned > 1 else None,
            "share_zero": self._zero / assigned if assigned else None,
            "share_masked": self._masked / self._rows if self._rows else None,
            "groups_without_success": self._without_success,
            "groups_all_equal": self._all_equal,
        }
