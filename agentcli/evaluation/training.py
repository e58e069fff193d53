"""The cost of training: the iterations of a loop (rollout, credit, train) summed.

Every loop plays its own tasks, for its own number of iterations. Costs can be compared,
success cannot: the leaves of a tree are not independent samples, and tasks and policy
change from one iteration to the next. So success is reported as the loop's course,
without interval, gain or test. Use an evaluation to measure what a loop achieved.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from statistics import fmean
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from agentcli.evaluation.growth import Cost, cost_of
from agentcli.records.types import Ledger

PARTS = 4
"""Number of equal parts of a loop for which its course is reported."""
TIMED = ("policy", "environment", "train")
"""Parts of the work whose seconds are summed."""
Number = TypeVar("Number", int, float)


class Responses(Struct, frozen=True):
    """The responses that an iteration learned from."""

    updated: int
    """Responses with a gradient; with a KL term (beta > 0) all that are trained on."""
    given: int
    """Responses with a line of credit."""


class ResponsesUpdated(Struct, kw_only=True):
    """The responses that a loop learned from: `updated`, as a `share` of those `given`."""

    updated: int
    given: int
    share: float


class Iteration(Struct, frozen=True, kw_only=True):
    """One rollout and what was learned from it."""

    method: str
    credit: str | None
    """Credit method, or another objective. None: not trained on."""
    trees: int
    leaves: int
    success: int
    errored: int
    ledger: Ledger
    forks_by_depth: list[float]
    """As in Growth."""
    responses: Responses | None
    """None: not trained on, or in pairs (dpo)."""
    updates: int | None
    """Updates of the optimiser."""
    seconds: dict[str, float]
    """policy and environment as rollout counts them, train: wall. What is not known is
    left out. A stage that was killed and resumed knows its last attempt only.
    """


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
    """The cost of these iterations together."""
    leaves = sum(one.leaves for one in iterations)
    ledger = sum((one.ledger for one in iterations), Ledger())
    rates = [one.success / max(1, one.leaves) for one in iterations]
    seconds = {}
    for part in TIMED:
        spent = [one.seconds.get(part) for one in iterations]
        seconds[part] = _sum(spent)
    return LoopCost(
        **asdict(cost_of(ledger, leaves)),
        method=_joined(one.method for one in iterations),
        credit=_joined(one.credit for one in iterations),
        trees=sum(one.trees for one in iterations),
        leaves=leaves,
        errored=sum(one.errored for one in iterations),
        forks_by_depth=_forks_by_depth(iterations),
        success_by_part=course(rates),
        responses=_responses(iterations),
        updates=_sum([one.updates for one in iterations]),
        seconds=seconds,
    )


def course(*loops: Sequence[float], parts: int = PARTS) -> list[float]:
    """Means over equal parts of loops, all loops together.

    loops: a number an iteration. A loop shorter than `parts` has as many parts as
    iterations.
    """
    shortest = min(map(len, loops), default=0)
    parts = min(parts, shortest)
    values: list[list[float]] = [[] for _ in range(parts)]
    for loop in loops:
        for place, value in enumerate(loop):
            part = place * parts // len(loop)
            values[part].append(value)
    return [fmean(part_values) for part_values in values]


def _forks_by_depth(iterations: Sequence[Iteration]) -> list[float]:
    """The shares over all forks."""
    forks = sum(one.ledger.forks for one in iterations)
    columns = zip_longest(*(one.forks_by_depth for one in iterations), fillvalue=0.0)
    shares = []
    for column in columns:
        pairs = zip(iterations, column, strict=True)
        shares.append(sum(one.ledger.forks * share for one, share in pairs) / forks)
    return shares


def _responses(iterations: Sequence[Iteration]) -> ResponsesUpdated | None:
    """The sums of `responses`; None where one iteration has none."""
    updated = 0
    given = 0
    for iteration in iterations:
        if iteration.responses is None:
            return None
        updated += iteration.responses.updated
        given += iteration.responses.given
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
    known = dict.fromkeys(name for name in names if name is not None)
    return ", ".join(known) or None
