"""What training cost: the iterations of a loop (rollout, credit, train; again and again) summed.

Every loop walks tasks of its own, for its own number of iterations, so that costs may be laid side by side and success may not:
leaves of one tree are no independent sample, and both tasks and policy change from one iteration to the next. Success is told
as the loop's course, without interval, gain or test; what a loop brought is for an evaluation to say.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

import msgspec

from agentcli.evaluation.growth import paid
from agentcli.records.types import Ledger

PARTS = 4
"""Parts of a loop of which the course is told."""


class Responses(msgspec.Struct, frozen=True):
    """Of one iteration: `given` have a line of credit, `updated` of them had a gradient (with a KL term, beta > 0, all that are
    trained on)."""

    updated: int
    given: int


class Iteration(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout and what was learned from it."""

    method: str
    credit: str | None
    """Credit method, or another objective; None: not trained on."""
    trees: int
    leaves: int
    success: int
    errored: int
    ledger: Ledger
    responses: Responses | None
    """None: not trained on, or in pairs (dpo)."""
    updates: int | None
    """Of the optimiser."""
    seconds: dict[str, float]
    """policy and environment as rollout counts them, train: wall; what is not known is left out. A stage that was killed and
    resumed knows its last attempt only."""


def training_cost(iterations: Sequence[Iteration]) -> dict[str, Any]:
    """method and credit (several with commas, None without any), trees, leaves, errored (leaves), success_by_part (the `course` of
    the leaves' success), what `growth.paid` says, responses (updated, given, and the share of the one in the other), updates,
    seconds (policy, environment, train). Responses, updates and seconds are None where an iteration does not know its own: part
    of a sum is no sum."""
    leaves = sum(own.leaves for own in iterations)
    updated, given = (_sum(getattr(own.responses, name, None) for own in iterations) for name in ("updated", "given"))
    return {
        "method": _named(own.method for own in iterations),
        "credit": _named(own.credit for own in iterations),
        "trees": sum(own.trees for own in iterations),
        "leaves": leaves,
        "errored": sum(own.errored for own in iterations),
        "success_by_part": course([own.success / max(1, own.leaves) for own in iterations]),
        **paid(sum((own.ledger for own in iterations), Ledger()), leaves),
        "responses": {"updated": updated, "given": given, "share": updated / max(1, given)}
        if updated is not None and given is not None
        else None,
        "updates": _sum(own.updates for own in iterations),
        "seconds": {
            name: _sum(own.seconds.get(name) for own in iterations) for name in ("policy", "environment", "train")
        },
    }


def course(*loops: Sequence[float], parts: int = PARTS) -> list[float]:
    """Means over equal parts of loops, a number an iteration, all loops together; a loop shorter than `parts` has as many as
    iterations."""
    length = min((len(loop) for loop in loops), default=0)
    found: list[list[float]] = [[] for _ in range(min(parts, length))]
    for loop in loops:
        for place, value in enumerate(loop):
            found[place * len(found) // len(loop)].append(value)
    return [fmean(part) for part in found]


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _named(names: Iterable[str | None]) -> str | None:
    return ", ".join(dict.fromkeys(name for name in names if name is not None)) or None
