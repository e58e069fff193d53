"""The cost of training: the iterations of a loop (rollout, credit, train) summed.

Every loop plays its own tasks, for its own number of iterations. Costs can be compared,
success cannot: the leaves of a tree are not independent samples, and tasks and policy
change from one iteration to the next. So success is reported as the loop's course,
without interval, gain or test. Use an evaluation to measure what a loop achieved.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from operator import mul
from pathlib import PurePath
from statistics import fmean
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from agentcli.evaluation.growth import Cost, cost_of
from agentcli.records.grouping import grouped
from agentcli.records.types import Count, Ledger

PARTS = 4
"""Number of equal parts of a loop for which its course is reported."""
Number = TypeVar("Number", int, float)

# An iteration is read from its manifest: these types name the fields that are needed.


class TaskSource(Struct):
    """The settings that say which kind of tasks there are, but not how many."""

    name: str
    split: str
    panel: str | None = None
    where: dict[str, Any] = {}


class MethodSettings(Struct):
    """How trees grew."""

    method: str


class SampledSettings(Struct):
    """The settings of a rollout."""

    environment: TaskSource
    rollout: MethodSettings


class SampledCounts(Struct):
    """The counts of a rollout."""

    trees: Count
    leaves: Count
    success: Count
    errored: Count


class SampledResults(Struct):
    """Shares over the trajectories of a rollout, as of an evaluation."""

    explore: float
    repetitive: float
    malformed: float
    inadmissible: float


class SampledStatistics(Struct):
    """The statistics of a rollout."""

    forks_by_depth: list[float]
    """As in Growth."""
    results: SampledResults | None = None


class RolloutEntry(Struct):
    """What a rollout left."""

    settings: SampledSettings
    counts: SampledCounts
    statistics: SampledStatistics
    ledger: Ledger
    seconds: dict[str, float]


class ObjectiveSettings(Struct):
    """What was optimised."""

    objective: str


class LearnedSettings(Struct):
    """The settings of a training."""

    train: ObjectiveSettings


class LearnedStatistics(Struct):
    """The statistics of a training."""

    updates: Count
    """Updates of the optimiser."""
    rows: Count | None = None
    """Rows of credit. None for dpo, which learns from pairs."""
    rows_skipped: Count = 0
    """Rows without a gradient; with a KL term (beta > 0) none is."""
    rows_unassigned: Count = 0
    rows_not_critical: Count = 0
    rows_without_spread: Count = 0
    rows_without_tokens: Count = 0


class TrainEntry(Struct):
    """What a training left."""

    settings: LearnedSettings
    inputs: dict[str, str]
    statistics: LearnedStatistics
    seconds: dict[str, float]


class Iteration(Struct):
    """One rollout and what was learned from it."""

    rollout: RolloutEntry
    train: TrainEntry | None = None

    @property
    def credit(self) -> str | None:
        """The credit that was read, else the objective. None: not trained on."""
        if self.train is None:
            return None
        for path in map(PurePath, self.train.inputs):
            if path.parent.name == "credit" and path.suffix == ".jsonl":
                return path.stem
        return self.train.settings.train.objective

    @property
    def updated(self) -> int | None:
        """The responses with a gradient; None without a training, or one of pairs."""
        if self.train is None:
            return None
        learned = self.train.statistics
        if learned.rows is None:
            return None
        return learned.rows - learned.rows_skipped

    @property
    def updates(self) -> int | None:
        """Updates of the optimiser; None without a training."""
        if self.train is None:
            return None
        return self.train.statistics.updates

    @property
    def seconds(self) -> dict[str, float | None]:
        """The duration of each part of the work; None where it is not known.

        Of a rollout that was killed and resumed, those of its last attempt; of a
        training, those of all.
        """
        sampling = self.rollout.seconds
        learning = {} if self.train is None else self.train.seconds
        return {
            "policy": sampling.get("policy"),
            "environment": sampling.get("environment"),
            "train": learning.get("wall"),
        }


class ResponsesUpdated(Struct, kw_only=True):
    """The responses that a loop learned from: `updated`, as a `share` of those `given`."""

    updated: int
    """Responses with a gradient."""
    given: int
    """Responses with a line of credit."""
    share: float


class LoopCost(Cost, kw_only=True):
    """The iterations of a loop summed.

    A sum is None if the value of any iteration is unknown: a partial sum would mislead.
    """

    iterations: int | None = None
    """How many are summed. This and the next two are None without a loop."""
    unfinished: int | None = None
    """How many others were begun, or are missing."""
    ended: bool | None = None
    """Whether the loop is over."""
    method: str | None
    """Several are separated by commas."""
    credit: str | None
    """Several are separated by commas; None where nothing was trained on."""
    trees: int
    leaves: int
    errored: int
    """Leaves."""
    forks_by_depth: list[float]
    """As in Growth."""
    success_by_part: list[float]
    """The `course` of the leaves' success."""
    responses: ResponsesUpdated | None
    updates: int | None
    seconds: dict[str, float | None]


def training_cost(iterations: Sequence[Iteration]) -> LoopCost:
    """The cost of these iterations together; there is at least one."""
    rollouts = [one.rollout for one in iterations]
    trees = leaves = errored = 0
    ledger = Ledger()
    success = []
    for rollout in rollouts:
        counts = rollout.counts
        trees += counts.trees
        leaves += counts.leaves
        errored += counts.errored
        ledger += rollout.ledger
        success.append(counts.success / max(1, counts.leaves))
    seconds = {}
    # All iterations name the same parts, some of them without a duration.
    for part in iterations[0].seconds:
        durations = [one.seconds[part] for one in iterations]
        seconds[part] = _sum(durations)
    return LoopCost(
        **asdict(cost_of(ledger, leaves)),
        method=_joined(one.settings.rollout.method for one in rollouts),
        credit=_joined(one.credit for one in iterations),
        trees=trees,
        leaves=leaves,
        errored=errored,
        forks_by_depth=_forks_by_depth(rollouts),
        success_by_part=course(success),
        responses=_responses(iterations),
        updates=_sum([one.updates for one in iterations]),
        seconds=seconds,
    )


def course(loop: Sequence[float], parts: int = PARTS) -> list[float]:
    """Means over equal parts of a loop, which has a number an iteration.

    A loop shorter than `parts` has as many parts as iterations.
    """
    parts = min(parts, len(loop))
    values = grouped(
        (place * parts // len(loop), value) for place, value in enumerate(loop)
    )
    return list(map(fmean, values.values()))


def _forks_by_depth(rollouts: Sequence[RolloutEntry]) -> list[float]:
    """The shares over all forks."""
    # Iterations without shares weigh nothing, whatever their ledger says.
    known = [one for one in rollouts if one.statistics.forks_by_depth]
    forks = [one.ledger.forks for one in known]
    every = [one.statistics.forks_by_depth for one in known]
    shares = []
    for column in zip_longest(*every, fillvalue=0.0):
        forks_there = map(mul, forks, column)
        shares.append(sum(forks_there) / sum(forks))
    return shares


def _responses(iterations: Sequence[Iteration]) -> ResponsesUpdated | None:
    """The sums over all iterations; None where one learned from no responses."""
    updated = 0
    given = 0
    for iteration in iterations:
        if iteration.train is None or iteration.updated is None:
            return None
        updated += iteration.updated
        learned = iteration.train.statistics
        given += (
            iteration.updated
            + learned.rows_skipped
            + learned.rows_unassigned
            + learned.rows_not_critical
        )
        given += learned.rows_without_spread + learned.rows_without_tokens
    share = updated / max(1, given)
    return ResponsesUpdated(updated=updated, given=given, share=share)


def _sum(values: Sequence[Number | None]) -> Number | None:
    """The sum; None if any value is None."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return sum(known)


def _joined(names: Iterable[str | None]) -> str | None:
    """The different names with commas; None without any."""
    known = dict.fromkeys(filter(None, names))
    return ", ".join(known) or None
