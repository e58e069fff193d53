"""Episodes to one summary: overall and by task kind, every rate with its interval."""

from collections.abc import Iterable
from typing import Any

from agentcli.evaluation.statistics import clustered_bootstrap, pass_at_k, wilson
from agentcli.records.types import Episode, Outcome


def summarise(episodes: Iterable[Episode]) -> dict[str, Any]:
    """Counts, success with a 95 % interval, score, ratios, overall and under `kinds`.

    steps, moves (None where an episode does not tell) and tokens are means over episodes. repetitive and inadmissible are shares
    of the moves, or of the steps of an episode that tells no moves; explore and malformed are shares of the steps.
    An errored episode counts as no success (it is also counted by itself: leaving it out would reward crashes).
    The interval is Wilson's with one sample per task, else a bootstrap clustered by task.
    """
    rows = list(episodes)
    kinds = sorted({row.kind for row in rows})
    return _summary(rows) | {"kinds": {kind: _summary([row for row in rows if row.kind == kind]) for kind in kinds}}


def successes_by_task(rows: Iterable[Episode]) -> dict[str, list[bool]]:
    """Per task id the success of every sample, in order of appearance."""
    found: dict[str, list[bool]] = {}
    for row in rows:
        found.setdefault(row.task, []).append(row.outcome is Outcome.SUCCESS)
    return found


def pass_at_k_summary(episodes: Iterable[Episode], k: int) -> dict[str, Any]:
    """pass@k for 1, 2, 4, ... and k, mean over tasks, bootstrap interval over tasks (000 appendix C.2, Table 13).

    Raises ValueError when a task has fewer than k samples.
    """
    results = successes_by_task(episodes)
    table = {}
    for attempts in sorted({1, k} | {2**i for i in range(k.bit_length()) if 2**i < k}):
        values = [[pass_at_k(len(samples), sum(samples), attempts)] for samples in results.values()]
        low, high = clustered_bootstrap(values)
        table[str(attempts)] = {"rate": sum(v[0] for v in values) / max(1, len(values)), "low": low, "high": high}
    return table


def _summary(rows: list[Episode]) -> dict[str, Any]:
    by_task = successes_by_task(rows)
    wins = sum(sum(samples) for samples in by_task.values())
    single = all(len(samples) == 1 for samples in by_task.values())
    low, high = wilson(wins, len(rows)) if single else clustered_bootstrap(list(by_task.values()))
    steps = sum(row.steps for row in rows)
    moves = sum(row.steps if row.moves is None else row.moves for row in rows)
    outcomes = {outcome.value: sum(row.outcome is outcome for row in rows) for outcome in Outcome}
    return {
        "episodes": len(rows),
        "tasks": len(by_task),
        "outcomes": outcomes,
        "success": {
            "rate": _share(wins, len(rows)),
            "low": low,
            "high": high,
            "interval": "wilson" if single else "bootstrap",
        },
        "score": _share(sum(row.score for row in rows), len(rows)),
        "steps": _share(steps, len(rows)),
        "moves": None if any(row.moves is None for row in rows) else _share(moves, len(rows)),
        "tokens": _share(sum(row.tokens for row in rows), len(rows)),
        "repetitive": _share(sum(row.repetitive_steps for row in rows), moves),
        "explore": _share(sum(row.explore_steps for row in rows), steps),
        "malformed": _share(sum(row.malformed_steps for row in rows), steps),
        "inadmissible": _share(sum(row.inadmissible_steps for row in rows), moves),
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
