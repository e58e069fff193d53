"""Episodes to results: overall and by task kind, every rate with its interval."""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from statistics import fmean
from typing import Any, Literal

from msgspec.structs import asdict

from agentcli.evaluation.record import Rate, Results, ResultsByKind, SuccessRate, rated
from agentcli.evaluation.statistics import clustered_bootstrap, pass_at_k, wilson
from agentcli.records.grouping import grouped
from agentcli.records.types import Episode, Outcome

Episodes = Sequence[Episode]


def summarise(episodes: Iterable[Episode]) -> ResultsByKind:
    """The results of all episodes, and of each task kind."""
    rows = list(episodes)
    kinds = {}
    for kind, of_kind in by_kind(rows).items():
        kinds[kind] = results_of(of_kind)
    return ResultsByKind(**asdict(results_of(rows)), kinds=kinds)


def results_of(rows: Episodes) -> Results:
    """The results of these episodes together.

    An errored episode does not count as a success, and has its own entry in `outcomes`:
    leaving it out would reward crashes.
    """

    def total(field: str) -> Any:
        return sum(getattr(row, field) for row in rows)

    count = len(rows)
    steps = total("steps")
    moves = total("moves")
    outcomes = Counter(row.outcome for row in rows)
    return Results(
        episodes=count,
        tasks=len({row.task for row in rows}),
        outcomes={outcome: outcomes[outcome] for outcome in Outcome},
        success=_success(rows),
        score=share(total("score"), count),
        steps=share(steps, count),
        moves=share(moves, count),
        tokens=share(total("tokens"), count),
        repetitive=share(total("repetitive_steps"), moves),
        explore=share(total("explore_steps"), steps),
        malformed=share(total("malformed_steps"), steps),
        inadmissible=share(total("inadmissible_steps"), moves),
    )


def successes_by_task(rows: Iterable[Episode]) -> dict[str, list[bool]]:
    """The success of every sample by task id, in order of appearance."""
    return grouped((row.task, row.outcome is Outcome.SUCCESS) for row in rows)


def by_kind(rows: Iterable[Episode]) -> dict[str, list[Episode]]:
    """The episodes by task kind, kinds sorted by name."""
    # Sorting is stable: within a kind the tasks stay in the order of the panel.
    return grouped((row.kind, row) for row in sorted(rows, key=attrgetter("kind")))


def pass_at_k_summary(episodes: Iterable[Episode], k: int) -> dict[str, Rate]:
    """pass@k for 1, 2, 4, ... and k, as means over tasks (SPARK appendix C.2, Table 13).

    The intervals are bootstraps over tasks. Raises ValueError when a task has fewer
    than k samples.
    """
    successes = successes_by_task(episodes)
    powers_of_two = [2**exponent for exponent in range(k.bit_length())]
    table = {}
    for attempts in sorted({*powers_of_two, k}):
        chances = []
        for samples in successes.values():
            chance = pass_at_k(len(samples), sum(samples), attempts)
            chances.append(chance)
        # One value a task: its samples are already in the estimate.
        interval = clustered_bootstrap([[chance] for chance in chances])
        mean = share(sum(chances), len(chances))
        table[str(attempts)] = rated(mean, interval)
    return table


def _success(rows: Episodes) -> SuccessRate:
    """The share of success: with Wilson's interval, or a bootstrap clustered by task."""
    samples_by_task = list(successes_by_task(rows).values())
    wins = sum(map(sum, samples_by_task))
    method: Literal["wilson", "bootstrap"] = "wilson"
    low, high = wilson(wins, len(rows))
    # Samples of one task are not independent observations.
    if len(rows) > len(samples_by_task):
        low, high = clustered_bootstrap(samples_by_task)
        # Where tasks are alike there is nothing to draw, and it is Wilson's of tasks.
        task_rates = set(map(fmean, samples_by_task))
        if len(task_rates) > 1:
            method = "bootstrap"
    rate = share(wins, len(rows))
    return SuccessRate(rate=rate, low=low, high=high, interval=method)


def share(part: float, whole: float) -> float:
    """The quotient; 0 of nothing."""
    if whole == 0:
        return 0.0
    return part / whole
