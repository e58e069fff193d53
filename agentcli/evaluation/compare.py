"""Evaluations of the same tasks side by side: success, cost and behaviour of each, and paired tests against the first.

Knows episodes only. That the panels are alike is the caller's to check; tasks that one of two evaluations did not walk (a budget
ended it) are left out of what is paired.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agentcli.evaluation.statistics import mcnemar_exact, paired_bootstrap, wilcoxon_exact, wilson
from agentcli.evaluation.summary import successes_by_task, summarise
from agentcli.records.types import Episode, Ledger


def side_by_side(evaluations: Mapping[str, Sequence[Episode]]) -> dict[str, dict[str, Any]]:
    """For each evaluation its summary, `solved` (share of tasks with a success among their samples) and `ledger`, and, for
    all but the first, `against` it: the paired tests; all of it again for every task kind under `kinds`."""
    first = next(iter(evaluations.values()), [])
    found = {}
    for place, (name, rows) in enumerate(evaluations.items()):
        reference = first if place else None
        kinds = {
            kind: _row(_of(rows, kind), None if reference is None else _of(reference, kind))
            for kind in sorted({row.kind for row in rows})
        }
        found[name] = _row(rows, reference) | {"kinds": kinds}
    return found


def against(first: Sequence[Episode], other: Sequence[Episode]) -> dict[str, Any]:
    """What changed from `first` to `other` over the tasks that both walked.

    tasks: how many; success: the difference with its interval, in shares; mcnemar: exact p-value over tasks, None without any
    and unless each has one sample a task; tokens, steps: cost per task relative to the first's (from the ledgers: everything
    that was generated and executed), None where that is 0.
    """
    before, after = successes_by_task(first), successes_by_task(other)
    tasks = [task for task in before if task in after]
    difference, low, high = paired_bootstrap([before[task] for task in tasks], [after[task] for task in tasks])
    single = all(len(samples[task]) == 1 for samples in (before, after) for task in tasks)
    common = set(tasks)
    costs = [charged([row for row in rows if row.task in common]) for rows in (first, other)]
    return {
        "tasks": len(tasks),
        "success": {"difference": difference, "low": low, "high": high},
        "mcnemar": mcnemar_exact([before[task][0] for task in tasks], [after[task][0] for task in tasks])
        if single and tasks
        else None,
        "tokens": _ratio(costs[1].generated_tokens, costs[0].generated_tokens),
        "steps": _ratio(costs[1].steps, costs[0].steps),
    }


def hides_moves(rows: Sequence[Episode]) -> bool:
    """Whether responses acted in several copies and some episode does not tell in how many moves: what is else a share of the
    moves (evaluation.summary) is there one of the responses.

    The ledgers tell: every move is charged, and nothing else is but the branches of a vote, which are forks.
    """
    paid = charged(rows)
    return any(row.moves is None for row in rows) and not paid.forks and paid.steps > sum(row.steps for row in rows)


def over_benchmarks(rates: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """Exact Wilcoxon signed-rank test of every name's success rates against the first's (000 appendix C.6).

    rates: one per benchmark, benchmarks in the same order for all. Under `p` the p-value, under `benchmarks` their number.
    """
    first = next(iter(rates.values()), [])
    return {
        name: {
            "benchmarks": len(own),
            "p": wilcoxon_exact([mine - theirs for mine, theirs in zip(own, first, strict=True)]),
        }
        for name, own in list(rates.items())[1:]
    }


def charged(rows: Sequence[Episode]) -> Ledger:
    """What the episodes cost together."""
    return sum((row.ledger for row in rows if row.ledger is not None), Ledger())


def _row(rows: Sequence[Episode], first: Sequence[Episode] | None) -> dict[str, Any]:
    summary = {name: value for name, value in summarise(rows).items() if name != "kinds"}
    solved = [any(samples) for samples in successes_by_task(rows).values()]
    low, high = wilson(sum(solved), len(solved))
    rate = sum(solved) / len(solved) if solved else 0.0
    return {
        **summary,
        "solved": {"rate": rate, "low": low, "high": high},
        "ledger": {name: getattr(charged(rows), name) for name in Ledger.__struct_fields__},
        **({"against": against(first, rows)} if first is not None else {}),
    }


def _of(rows: Sequence[Episode], kind: str) -> list[Episode]:
    return [row for row in rows if row.kind == kind]


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
