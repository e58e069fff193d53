"""Tables of `agentcli compare`: one row or column a run, the first is the reference.
Prints nothing.
"""

from collections.abc import Iterator, Mapping, Sequence

from agentcli.evaluation.compare import (
    ComparedEvaluation,
    ComparedResults,
    RunComparison,
    SignedRankTest,
)
from agentcli.evaluation.growth import Cost, Growth
from agentcli.evaluation.training import LoopCost
from agentcli.records.types import Ledger, Outcome
from agentcli.reports.blocks import Blocks
from agentcli.reports.tables import RATIOS, percent, percent_or_none, rate

BRIEF = 10
"""Seconds below which a duration is shown with its hundredths."""


def comparison_tables(comparison: RunComparison) -> Iterator[Blocks]:
    """Every table of a comparison: evaluations, their kinds, Wilcoxon, trees, training."""
    for label, runs in comparison.evaluations.items():
        yield label_table(label, runs)
        yield behaviour_table(label, runs)
        yield kinds_table(label, runs)
    if comparison.wilcoxon:
        yield wilcoxon_table(comparison.wilcoxon, comparison.benchmarks)
    if comparison.trees:
        yield trees_table(comparison.trees)
    if comparison.training:
        yield training_table(comparison.training)


def label_table(label: str, runs: Mapping[str, ComparedEvaluation]) -> Blocks:
    """Success of each run, and its gain over the first in points.

    Some columns are there only when they say something: errored episodes; the tasks
    that gain and p-value are of, when runs walked unlike parts of the panel; the tasks
    solved, with several samples a task.
    """
    rows = list(runs.values())
    some_errored = any(_errored_episodes(row) for row in rows)
    unlike_parts = len({row.tasks for row in rows}) > 1
    several_samples = any(row.episodes > row.tasks for row in rows)
    heads = ["episodes", "success % (95 %)", "gain (95 %)", "McNemar p"]
    if some_errored:
        heads.append("errored")
    if unlike_parts:
        heads.append("tasks in common")
    if several_samples:
        heads.append("tasks solved % (95 %)")
    table = Blocks(f"evaluation {label}, against the first", ("run",), heads)
    for name, row in runs.items():
        cells = [str(row.episodes), rate(row.success), _gain(row), _p_value(row)]
        if some_errored:
            cells.append(str(_errored_episodes(row)))
        if unlike_parts:
            cells.append(str(row.against.tasks) if row.against else "")
        if several_samples:
            cells.append(rate(row.solved))
        table.add((name,), cells)
    return table


def behaviour_table(label: str, runs: Mapping[str, ComparedEvaluation]) -> Blocks:
    """The behaviour of the episodes, and the cost of a task: all samples, votes and
    copies.

    The cost is also shown as a multiple of what the first paid for the tasks that both
    walked.
    """
    heads = (
        "steps an episode",
        *(f"{name} %" for name in RATIOS),
        "steps a task",
        "tokens a task",
    )
    table = Blocks(
        f"evaluation {label}: episodes, and what a task cost", ("run",), heads
    )
    for name, row in runs.items():
        tasks = max(1, row.tasks)
        steps = f"{row.ledger.steps / tasks:.1f}"
        tokens = f"{row.ledger.generated_tokens / tasks:.1f}"
        if row.against:
            steps += _times(row.against.steps)
            tokens += _times(row.against.tokens)
        ratios = [percent(getattr(row, ratio)) for ratio in RATIOS]
        table.add((name,), [f"{row.steps:.1f}", *ratios, steps, tokens])
    return table


def kinds_table(label: str, runs: Mapping[str, ComparedEvaluation]) -> Blocks:
    """Success by task kind, a column a run, with the gain over the first."""
    table = Blocks(
        f"evaluation {label} by kind: success % (95 %), gain", ("kind",), list(runs)
    )
    kinds = dict.fromkeys(kind for row in runs.values() for kind in row.kinds)
    for kind in kinds:
        table.add((kind,), [_kind_cell(row.kinds.get(kind)) for row in runs.values()])
    return table


def wilcoxon_table(
    tests: Mapping[str, SignedRankTest], benchmarks: Sequence[str]
) -> Blocks:
    """The signed-rank test over benchmarks."""
    title = (
        f"exact Wilcoxon signed-rank over {', '.join(benchmarks)}, against the first"
    )
    table = Blocks(title, ("run",), ("benchmarks", "p"))
    for name, test in tests.items():
        table.add((name,), (str(test.benchmarks), f"{test.p:.2g}"))
    return table


def trees_table(runs: Mapping[str, Growth]) -> Blocks:
    """Cost and success of rollouts: a column a run. Every cost of a further run is also
    a multiple of the first's.
    """
    rows = list(runs.values())
    table = Blocks("trees, against the first", ("",), list(runs))
    table.add(("method",), [row.method for row in rows])
    table.add(("tasks",), [str(row.tasks) for row in rows])
    table.add(("success of leaves % (95 %)",), [rate(row.success) for row in rows])
    _add_errored(table, [row.errored for row in rows])
    table.add(("explore % of responses",), [percent(row.explore) for row in rows])
    table.add(("malformed % of responses",), [percent(row.malformed) for row in rows])
    table.add(
        ("cut at max_tokens % of responses",),
        [percent_or_none(row.cut) for row in rows],
    )
    _add_ledger(table, [row.ledger for row in rows])
    _add_shares(table, rows)
    table.add(
        ("distinct % at the initial state",),
        [percent_or_none(row.distinct_at_start) for row in rows],
    )
    table.add(
        ("distinct % at forks",),
        [percent_or_none(row.distinct_of_forks) for row in rows],
    )
    _add_costs_per_leaf(table, rows)
    for part in ("policy", "environment"):
        _add_seconds(table, part, [row.seconds.get(part) for row in rows])
    return table


def training_table(runs: Mapping[str, LoopCost]) -> Blocks:
    """Cost of loops: a column a run. Every cost of a further run is also a multiple of
    the first's.

    Success is shown as each loop's course alone: its tasks and its policy are its own.
    """
    rows = list(runs.values())
    table = Blocks(
        "what training cost, against the first (each loop on its own tasks)",
        ("",),
        list(runs),
    )
    table.add(("method",), [row.method or "-" for row in rows])
    table.add(("credit",), [row.credit or "-" for row in rows])
    table.add(("iterations",), [_iterations(row) for row in rows])
    table.add(("trees",), _multiples([row.trees for row in rows], ","))
    _add_errored(table, [row.errored for row in rows])
    _add_ledger(table, [row.ledger for row in rows])
    _add_shares(table, rows)
    _add_costs_per_leaf(table, rows)
    updated = [None if row.responses is None else row.responses.updated for row in rows]
    shares = [
        None if row.responses is None else 100 * row.responses.share for row in rows
    ]
    table.add(("responses updated",), _multiples(updated, ","))
    table.add(("updated % of responses",), _multiples(shares, ".1f"))
    table.add(("updates",), _multiples([row.updates for row in rows], ","))
    for part in ("policy", "environment", "train"):
        _add_seconds(table, part, [row.seconds.get(part) for row in rows])
    table.add(
        ("success of leaves %, by part",),
        [" ".join(map(percent, row.success_by_part)) for row in rows],
    )
    return table


def _add_errored(table: Blocks, counts: Sequence[int]) -> None:
    """A row where any leaf is errored."""
    if any(counts):
        table.add(("errored leaves",), [f"{count:,}" for count in counts])


def _add_ledger(table: Blocks, ledgers: Sequence[Ledger]) -> None:
    for field in Ledger.__struct_fields__:
        counts = [getattr(ledger, field) for ledger in ledgers]
        table.add((field.replace("_", " "),), _multiples(counts, ","))


def _add_shares(table: Blocks, costs: Sequence[Cost]) -> None:
    table.add(("shared % of prompt tokens",), [percent(cost.shared) for cost in costs])
    table.add(
        ("distinct actions % of siblings",),
        [percent_or_none(cost.distinct) for cost in costs],
    )


def _add_costs_per_leaf(table: Blocks, costs: Sequence[Cost]) -> None:
    table.add(
        ("steps per leaf",), _multiples([cost.steps_per_leaf for cost in costs], ".1f")
    )
    table.add(
        ("generated tokens per leaf",),
        _multiples([cost.tokens_per_leaf for cost in costs], ".1f"),
    )


def _add_seconds(table: Blocks, part: str, seconds: Sequence[float | None]) -> None:
    brief = any(value is not None and value < BRIEF for value in seconds)
    table.add((f"{part} seconds",), _multiples(seconds, ",.2f" if brief else ",.0f"))


def _multiples(values: Sequence[float | None], form: str) -> list[str]:
    """Every value, all but the first with its multiple of the first: "1,200", "1,800
    x1.50"; "-" for none.
    """
    first, *others = values
    cells = ["-" if first is None else f"{first:{form}}"]
    for value in others:
        if value is None:
            cells.append("-")
        else:
            cells.append(f"{value:{form}}" + _times(value / first if first else None))
    return cells


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f" x{ratio:.2f}"


def _iterations(row: LoopCost) -> str:
    if row.iterations is None:
        return "-"
    whole = row.ended and not row.unfinished
    return f"{row.iterations:,}" + ("" if whole else " (unfinished)")


def _errored_episodes(row: ComparedResults) -> int:
    return row.outcomes[Outcome.ERRORED]


def _gain(row: ComparedResults) -> str:
    if not row.against:
        return ""
    gain = row.against.success
    return (
        f"{100 * gain.difference:+.1f} ({100 * gain.low:+.1f} to "
        f"{100 * gain.high:+.1f})"
    )


def _p_value(row: ComparedResults) -> str:
    if not row.against:
        return ""
    return "-" if row.against.mcnemar is None else f"{row.against.mcnemar:.2g}"


def _kind_cell(row: ComparedResults | None) -> str:
    if row is None:
        return "-"
    if not row.against or not row.against.tasks:
        return rate(row.success)
    return f"{rate(row.success)} {100 * row.against.success.difference:+.1f}"
