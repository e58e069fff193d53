"""Episodes to results: overall and by task kind, every rate with its interval."""

from collections.abc import Iterable, Sequence

from msgspec.structs import asdict

from agentcli.evaluation.record import Rate, Results, ResultsByKind, SuccessRate
from agentcli.evaluation.statistics import clustered_bootstrap, pass_at_k, wilson
from agentcli.records.types import Episode, Outcome


def summarise(episodes: Iterable[Episode]) -> ResultsByKind:
    """The results of all episodes, and of each task kind."""
    rows = list(episodes)
    kinds = {kind: results_of(of_kind) for kind, of_kind in by_kind(rows).items()}
    return ResultsByKind(**asdict(results_of(rows)), kinds=kinds)


def results_of(rows: Sequence[Episode]) -> Results:
    """The results of these episodes together.

    An errored episode counts as no success, and by itself under `outcomes`: leaving it
    out would reward crashes. The interval of the success is Wilson's with one sample a
    task, else a bootstrap clustered by task.
    """
    steps = sum(row.steps for row in rows)
    moves = sum(row.steps if row.moves is None else row.moves for row in rows)
    moves_known = all(row.moves is not None for row in rows)
    return Results(
        episodes=len(rows),
        tasks=len({row.task for row in rows}),
        outcomes={
            outcome: sum(row.outcome is outcome for row in rows) for outcome in Outcome
        },
        success=_success(rows),
        score=_share(sum(row.score for row in rows), len(rows)),
        steps=_share(steps, len(rows)),
        moves=_share(moves, len(rows)) if moves_known else None,
        tokens=_share(sum(row.tokens for row in rows), len(rows)),
        repetitive=_share(sum(row.repetitive_steps for row in rows), moves),
        explore=_share(sum(row.explore_steps for row in rows), steps),
        malformed=_share(sum(row.malformed_steps for row in rows), steps),
        inadmissible=_share(sum(row.inadmissible_steps for row in rows), moves),
    )


def successes_by_task(rows: Iterable[Episode]) -> dict[str, list[bool]]:
    """The success of every sample by task id, in order of appearance."""
    successes: dict[str, list[bool]] = {}
    for row in rows:
        successes.setdefault(row.task, []).append(row.outcome is Outcome.SUCCESS)
    return successes


def by_kind(rows: Iterable[Episode]) -> dict[str, list[Episode]]:
    """The episodes by task kind, kinds sorted by name."""
    kinds: dict[str, list[Episode]] = {}
    for row in sorted(rows, key=lambda row: row.kind):
        kinds.setdefault(row.kind, []).append(row)
    return kinds


def pass_at_k_summary(episodes: Iterable[Episode], k: int) -> dict[str, Rate]:
    """pass@k for 1, 2, 4, ... and k: the mean over tasks, with a bootstrap interval
    over tasks (000 appendix C.2, Table 13).

    Raises ValueError when a task has fewer than k samples.
    """
    successes = successes_by_task(episodes)
    powers_of_two = {2**exponent for exponent in range(k.bit_length())}
    table = {}
    for attempts in sorted({k} | {power for power in powers_of_two if power < k}):
        chances = [
            pass_at_k(len(samples), sum(samples), attempts)
            for samples in successes.values()
        ]
        low, high = clustered_bootstrap([[chance] for chance in chances])
        table[str(attempts)] = Rate(
            rate=_share(sum(chances), len(chances)), low=low, high=high
        )
    return table


def _success(rows: Sequence[Episode]) -> SuccessRate:
    by_task = successes_by_task(rows)
    wins = sum(sum(samples) for samples in by_task.values())
    rate = _share(wins, len(rows))
    if all(len(samples) == 1 for samples in by_task.values()):
        low, high = wilson(wins, len(rows))
        return SuccessRate(rate=rate, low=low, high=high, interval="wilson")
    low, high = clustered_bootstrap(list(by_task.values()))
    return SuccessRate(rate=rate, low=low, high=high, interval="bootstrap")


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
