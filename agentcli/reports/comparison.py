"""Tables of `agentcli compare` and `agentcli credit compare`.

A run or a method has one row or column; of runs, the first is the reference.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from rich.text import Text

from agentcli.credit.compare import CreditComparison
from agentcli.evaluation.compare import (
    ComparedEvaluation,
    ComparedResults,
    Difference,
    PairedTests,
    RunComparison,
    SignedRankTest,
)
from agentcli.evaluation.growth import Cost, Growth
from agentcli.evaluation.training import LoopCost
from agentcli.records.faults import printable
from agentcli.records.types import Ledger, Outcome
from agentcli.reports.blocks import Blocks
from agentcli.reports.explanation import excerpt
from agentcli.reports.study import over_seeds, seed_table, tables
from agentcli.reports.tables import (
    RATIOS,
    SCORE,
    SUCCESS,
    fork_bands,
    is_graded,
    percent,
    rate,
    values_line,
)

GAIN = "gain (95 %)"
ERRORED = "errored"
ERRORED_LEAVES = "errored leaves"
SECONDS = " seconds"
IN_COMMON = "tasks in common"
SOLVED = "tasks solved % (95 %)"
LEVEL = 0.05
"""Significance level."""
RELATIONS = {
    "": "cannot be told from",
    "green": "is better than",
    "red": "is worse than",
}
"""By the colour of a gain."""
BRIEF = 10
"""Seconds below which a duration is shown with its hundredths."""


def comparison_tables(comparison: RunComparison) -> Iterator[Blocks | Text]:
    """A sentence for each evaluation, then every table.

    Tables: evaluations, their kinds, Wilcoxon, trees, training. Sides of several runs
    have their own.
    """
    if comparison.sides:
        yield from sides_tables(comparison)
        return
    for label, runs in comparison.evaluations.items():
        for name, row in runs.items():
            if row.against:
                yield verdict(label, comparison.first, name, row.against)
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


def sides_tables(comparison: RunComparison) -> Iterator[Blocks | Text]:
    """Gains over seeds, then those over games, and what the loops did not spend alike.

    The costs of a task are left out: they would be sums over seeds.
    """
    for title, rows in tables(comparison.differences, comparison.first):
        yield seed_table(f"{title}, over seeds", rows)
    for label, sides in comparison.evaluations.items():
        games = label_table(f"{label} over games, seeds taken as samples", sides)
        # Whether any seed solved a task says nothing of one run.
        games.leave_out(SOLVED)
        yield games
        yield kinds_table(label, sides)
    if comparison.wilcoxon:
        yield wilcoxon_table(comparison.wilcoxon, comparison.benchmarks)
    for line in over_seeds(comparison.unlike, comparison.differences):
        yield Text(printable(line))


def verdict(label: str, first: str, name: str, tests: PairedTests) -> Text:
    """Says in a sentence which run is better.

    It is said only where the interval leaves out 0, and a test that is exact for few
    tasks too agrees: McNemar's, or of several samples a task the signed-rank test.
    """
    gain, style = tests.success, _colour(tests)
    words = (
        f"{printable(name)} {RELATIONS[style]} {printable(first)} on "
        f"{printable(label)}: {_points(gain.difference)} points ({_span(gain)})"
    )
    if tests.p is not None:
        words += f", p {tests.p:.2g}"
    words += f"; of {tests.tasks} tasks {tests.gained} gained, {tests.lost} lost"
    return Text(words, style=style)


def label_table(label: str, runs: Mapping[str, ComparedEvaluation]) -> Blocks:
    """Success of each run, and its gain over the first in points.

    The score, a mean of rewards, has a column where it is more than the success rate.
    """
    heads = ["episodes", SUCCESS, SCORE, GAIN, "McNemar p", ERRORED, IN_COMMON, SOLVED]
    table = Blocks(f"evaluation {label}, against the first", ["run"], heads)
    for name, row in runs.items():
        gain = colour = p_value = common = ""
        if tests := row.against:
            gain, colour = _gain(tests.success), _colour(tests)
            p_value = "-" if tests.mcnemar is None else f"{tests.mcnemar:.2g}"
            common = str(tests.tasks)
        cells = [
            name,
            str(row.episodes),
            rate(row.success),
            f"{row.score:.3f}",
            gain,
            p_value,
            str(_errored_episodes(row)),
            common,
            rate(row.solved),
        ]
        table.add(cells, colours={GAIN: colour})
    # Columns that would say the same of every run are left out.
    rows = runs.values()
    if not any(map(is_graded, rows)):
        table.leave_out(SCORE)
    if not any(map(_errored_episodes, rows)):
        table.leave_out(ERRORED)
    # A budget may end a run early: gain and p-value are then of fewer tasks.
    if len({row.tasks for row in rows}) == 1:
        table.leave_out(IN_COMMON)
    if all(row.episodes <= row.tasks for row in rows):
        table.leave_out(SOLVED)
    return table


def _errored_episodes(row: ComparedResults) -> int:
    return row.outcomes[Outcome.ERRORED]


def _span(gain: Difference) -> str:
    """Both ends of the interval of a gain."""
    low = _points(gain.low)
    high = _points(gain.high)
    return f"{low} to {high}"


def _gain(gain: Difference) -> str:
    """A gain with its interval."""
    return f"{_points(gain.difference)} ({_span(gain)})"


def _colour(tests: PairedTests) -> str:
    """Green or red where the interval leaves out 0, and the exact test agrees."""
    # The bootstrap is too narrow for few tasks, where the exact test is not.
    if tests.p is not None and tests.p >= LEVEL:
        return ""
    if tests.success.low > 0:
        return "green"
    return "red" if tests.success.high < 0 else ""


def _points(difference: float) -> str:
    """A difference of two shares, in percentage points."""
    return f"{100 * difference:+.1f}"


def behaviour_table(label: str, runs: Mapping[str, ComparedEvaluation]) -> Blocks:
    """The behaviour of the episodes, and the cost of a task.

    A task costs all its samples, votes and copies. The cost is also a multiple of what
    the first paid for the tasks that both walked.
    """
    ratios = [f"{word} %" for word in RATIOS.values()]
    table = Blocks(
        f"evaluation {label}: episodes, and what a task cost",
        ["run"],
        ["steps an episode", *ratios, "steps a task", "tokens a task"],
    )
    for name, row in runs.items():
        # A budget that ended at once leaves no task to divide by.
        tasks = max(1, row.tasks)
        steps = f"{row.ledger.steps / tasks:.1f}"
        tokens = f"{row.ledger.generated_tokens / tasks:.1f}"
        if row.against:
            steps += _times(row.against.steps)
            tokens += _times(row.against.tokens)
        shares = [percent(getattr(row, ratio)) for ratio in RATIOS]
        table.add([name, f"{row.steps:.1f}", *shares, steps, tokens])
    return table


def kinds_table(label: str, runs: Mapping[str, ComparedEvaluation]) -> Blocks:
    """Success by task kind, a column a run, with the gain over the first."""
    title = f"evaluation {label} by kind: success % (95 %), gain"
    table = Blocks(title, ["kind"], list(runs))
    kinds = dict.fromkeys(kind for row in runs.values() for kind in row.kinds)
    for kind in kinds:
        results = [row.kinds.get(kind) for row in runs.values()]
        table.add([kind, *map(_kind_cell, results)])
    return table


def _kind_cell(row: ComparedResults | None) -> str:
    if row is None:
        return "-"
    # Without a task in common there is nothing to gain over.
    if not row.against or not row.against.tasks:
        return rate(row.success)
    return f"{rate(row.success)} {_points(row.against.success.difference)}"


def wilcoxon_table(
    tests: Mapping[str, SignedRankTest], benchmarks: Sequence[str]
) -> Blocks:
    """The signed-rank test over benchmarks."""
    title = (
        f"exact Wilcoxon signed-rank over {', '.join(benchmarks)}, against the first"
    )
    table = Blocks(title, ["run"], ["benchmarks", "p"])
    for name, test in tests.items():
        table.add([name, str(test.benchmarks), f"{test.p:.2g}"])
    return table


def trees_table(runs: Mapping[str, Growth]) -> Blocks:
    """Cost and success of rollouts, a column a run.

    Every cost of a further run is also a multiple of the first's.
    """
    return _by_run("trees, against the first", runs, _of_trees)


def training_table(runs: Mapping[str, LoopCost]) -> Blocks:
    """Cost of loops, a column a run; of a further run also as a multiple of the first's.

    Success is shown as each loop's course alone: its tasks and its policy are its own.
    """
    title = "what training cost, against the first (each loop on its own tasks)"
    return _by_run(title, runs, _of_training)


Cell = str | float | None
"""A text, or a cost that is set against that of the first run; None: not known."""
CostT = TypeVar("CostT", bound=Growth | LoopCost)


def _by_run(
    title: str,
    runs: Mapping[str, CostT],
    cells_of: Callable[[CostT, int], Mapping[str, Cell]],
) -> Blocks:
    """A table of the cells of each run; `cells_of` gets the deepest fork of all."""
    table = Blocks(title, [""], list(runs))
    deepest = max(len(run.forks_by_depth) for run in runs.values())
    columns = [cells_of(run, deepest) for run in runs.values()]
    for name in columns[0]:
        cells = [column[name] for column in columns]
        # Most runs have none.
        if name == ERRORED_LEAVES and set(cells) == {"0"}:
            continue
        table.add([name, *_beside_the_first(name, cells)])
    return table


def _of_trees(row: Growth, deepest: int) -> dict[str, Cell]:
    return {
        "method": row.method,
        "tasks": str(row.tasks),
        "success of leaves % (95 %)": rate(row.success),
        ERRORED_LEAVES: f"{row.errored:,}",
        "explore % of responses": percent(row.explore),
        "malformed % of responses": percent(row.malformed),
        "cut at max_tokens % of responses": percent(row.cut),
        **_of_ledger(row),
        "distinct % at the initial state": percent(row.distinct_at_start),
        "distinct % at forks": percent(row.distinct_of_forks),
        **_of_forks(row.forks_by_depth, deepest),
        "steps per leaf": row.steps_per_leaf,
        "generated tokens per leaf": row.tokens_per_leaf,
        f"policy{SECONDS}": row.seconds.get("policy"),
        f"environment{SECONDS}": row.seconds.get("environment"),
    }


def _of_training(row: LoopCost, deepest: int) -> dict[str, Cell]:
    # A run that is not a loop has no responses.
    updated = share = None
    if row.responses is not None:
        updated = row.responses.updated
        share = 100 * row.responses.share
    return {
        "method": row.method or "-",
        "credit": row.credit or "-",
        "iterations": _iterations(row),
        "trees": row.trees,
        ERRORED_LEAVES: f"{row.errored:,}",
        **_of_ledger(row),
        **_of_forks(row.forks_by_depth, deepest),
        "steps per leaf": row.steps_per_leaf,
        "generated tokens per leaf": row.tokens_per_leaf,
        "responses updated": updated,
        "updated % of responses": share,
        "updates": row.updates,
        f"policy{SECONDS}": row.seconds.get("policy"),
        f"environment{SECONDS}": row.seconds.get("environment"),
        f"train{SECONDS}": row.seconds.get("train"),
        "success of leaves %, by part": " ".join(map(percent, row.success_by_part)),
    }


def _iterations(row: LoopCost) -> str:
    if row.iterations is None:
        return "-"
    # A loop may have ended and lack an iteration that was removed since.
    is_whole = row.ended and not row.unfinished
    text = f"{row.iterations:,}"
    return text if is_whole else f"{text} (unfinished)"


def _of_ledger(cost: Cost) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for name in Ledger.__struct_fields__:
        cells[name.replace("_", " ")] = getattr(cost.ledger, name)
    cells["shared % of prompt tokens"] = percent(cost.shared)
    cells["distinct actions % of siblings"] = percent(cost.distinct)
    return cells


def _of_forks(shares: Sequence[float], deepest: int) -> dict[str, Cell]:
    """A cell for each band of depths in which any run forks."""
    padding = [0.0] * (deepest - len(shares))
    cells: dict[str, Cell] = {}
    for name, share in fork_bands([*shares, *padding]).items():
        cells[f"forks % after step {name}"] = percent(share) if shares else "-"
    return cells


def _beside_the_first(name: str, values: Sequence[Cell]) -> Iterator[str]:
    """Every cell as text, a cost after the first with its multiple of the first.

    For instance "1,200" and "1,800 x1.50"; "-" for none.
    """
    first = values[0]
    for place, value in enumerate(values):
        if value is None or isinstance(value, str):
            yield value or "-"
            continue
        form = ".1f" if isinstance(value, float) else ","
        if name.endswith(SECONDS):
            form = _form_of_seconds(values)
        ratio = None
        if place and first and not isinstance(first, str):
            ratio = value / first
        yield f"{value:{form}}{_times(ratio)}"


def _form_of_seconds(values: Sequence[Cell]) -> str:
    """Hundredths in the whole row where any duration is brief."""
    known = [value for value in values if not isinstance(value, str | None)]
    return ",.2f" if min(known, default=BRIEF) < BRIEF else ",.0f"


def _times(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f" x{ratio:.2f}"


COLUMNS = 6
"""Methods that have a column each among the steps where they differ."""
TEXT = 40
"""Characters of a text in a cell."""
NOISE = 1e-12
"""Means and correlations below it are shown as 0."""


def agreement_tables(comparison: CreditComparison) -> Iterator[Blocks]:
    """The methods, how far they agree, and the steps where they differ most."""
    yield _methods(comparison)
    yield _agreement(comparison)
    if comparison.disagreements:
        yield _disagreements(comparison)


def _methods(comparison: CreditComparison) -> Blocks:
    title = f"credit of {comparison.steps:,} steps"
    if comparison.kept < comparison.steps:
        title += f", figures from a sample of {comparison.kept:,}"
    table = Blocks(
        title,
        ["method", "from", "switches"],
        ["steps", "masked %", "zero %", "mean", "spread"],
    )
    for row in comparison.methods:
        cells = [
            row.method,
            row.file or "computed now",
            values_line(row.settings) or "defaults",
            f"{row.steps:,}",
            percent(row.share_masked),
            percent(row.share_zero),
            _number(row.mean),
            _number(row.spread),
        ]
        table.add(cells)
    return table


def _agreement(comparison: CreditComparison) -> Blocks:
    table = Blocks(
        "agreement over the steps to which both give an advantage",
        ["methods", "kind"],
        ["steps", "pearson", "spearman", "opposite sign %", "zero in one %"],
    )
    kinds = {row.kind for row in comparison.agreement}
    for row in comparison.agreement:
        kind = row.kind
        # The row of a single kind would repeat the row of all, whose kind is None.
        if len(kinds) == 2 and kind is not None:
            continue
        cells = [
            " ~ ".join(row.methods),
            "all" if kind is None else excerpt(kind, TEXT),
            f"{row.steps:,}",
            _number(row.pearson, "+.3f"),
            _number(row.spearman, "+.3f"),
            percent(row.share_opposite),
            percent(row.share_zero_in_one),
        ]
        table.add(cells, style="bold" if kind is None else None)
    return table


def _disagreements(comparison: CreditComparison) -> Blocks:
    title = (
        "where they differ most, each advantage measured by its method's root mean "
        "square; look closer with --explain LINE:STEP"
    )
    methods = [row.method for row in comparison.methods]
    texts = ["task", "action"]
    numbers = ["apart", "line:step"]
    # Many columns would make many blocks: the advantages then share one text.
    in_columns = len(methods) <= COLUMNS
    if in_columns:
        numbers = [*methods, *numbers]
    else:
        texts = [*texts, "advantages"]
    table = Blocks(title, texts, numbers)
    for row in comparison.disagreements:
        advantages = [_number(row.advantages[method]) for method in methods]
        if not in_columns:
            pairs = zip(methods, advantages, strict=True)
            advantages = [", ".join(f"{method} {value}" for method, value in pairs)]
        cells = [
            # Folded, since the middle tells tasks apart.
            row.task,
            excerpt(row.action, TEXT),
            *advantages,
            _number(row.distance),
            f"{row.line}:{row.step}",
        ]
        table.add(cells)
    return table


def _number(value: float | None, form: str = ".4g") -> str:
    if value is None:
        return "-"
    return format(0.0 if abs(value) < NOISE else value, form)
