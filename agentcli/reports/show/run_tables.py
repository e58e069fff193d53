"""The runs of a folder, what one run holds, and its tool calls, as tables."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from math import isclose
from pathlib import Path

from rich.text import Text

from agentcli.evaluation.calls import CallShares
from agentcli.evaluation.record import EvaluationSummary, Results, ResultsByKind
from agentcli.evaluation.training import course
from agentcli.records.calls import read_call
from agentcli.records.faults import printable
from agentcli.records.grouping import grouped
from agentcli.records.siblings import median_depth
from agentcli.records.trees import depths
from agentcli.records.types import Step
from agentcli.reports.blocks import Blocks
from agentcli.reports.show.runs import (
    IterationOverview,
    RunHoldings,
    RunOverview,
    StageOverview,
    headline,
)
from agentcli.reports.show.style import one_line, share_style, sparkline
from agentcli.reports.show.trees import ShownTree, TreeOverview
from agentcli.reports.tables import SCORE, SUCCESS, fork_bands, is_graded, percent, rate

MOST_TREES = 20
"""Rows of the table of trees that is not asked for whole."""
LONGEST_COURSE = 24
"""Characters of a course in a table."""
UNITS = (("day", 86400), ("hour", 3600), ("minute", 60))


def runs_table(folder: str, runs: Sequence[RunOverview], now: datetime) -> Blocks:
    """The runs of a folder, a row each."""
    table = Blocks(
        f"runs in {folder}", ["run", "stages", "model", "measured on"], ["%", "ended"]
    )
    for run in runs:
        # A narrow terminal would break the long word anywhere.
        stages = [name.replace("evaluation/", "eval ") for name in run.stages]
        stages += [f"{name} (not ended)" for name in run.unfinished]
        if run.problem is not None:
            stages = [f"cannot be read: {run.problem}"]
        # A checkpoint is known by its run.
        model = (run.model or "-").removesuffix("/checkpoint")
        cells = [run.path, ", ".join(stages), model]
        if run.success is None:
            cells += ["-", "-"]
        else:
            cells += [run.success.measured_on, percent(run.success.rate)]
        cells.append(age(run.finished, now))
        table.add(cells)
    return table


def stages_table(run: str, stages: Sequence[StageOverview], now: datetime) -> Blocks:
    """The stages of a run, a row each."""
    table = Blocks(run, ["stage", "method", "model"], ["%", "seconds", "ended"])
    for stage in stages:
        seconds = "-" if stage.seconds is None else f"{stage.seconds:.1f}"
        cells = [
            stage.name,
            stage.method or "-",
            stage.model or "-",
            percent(stage.success),
            seconds,
            age(stage.finished, now),
        ]
        table.add(cells)
    return table


def loop_line(iterations: Sequence[IterationOverview]) -> Text:
    """Success over the iterations of a loop, as a sparkline with its headline."""
    shares = [one.success for one in iterations]
    ends = headline(iterations)
    first = percent(ends.first)
    last = percent(ends.last)
    text = Text(f"success over {len(shares)} iterations: {first} % ")
    text.append(sparkline(shares), style="green")
    return text.append(f" {last} % ({printable(ends.measured_on)})")


def _loop_kinds(iterations: Sequence[ResultsByKind]) -> Blocks:
    """A row for each kind: success over the loop, and its last figures."""
    table = Blocks(
        "rollouts by kind",
        ["kind", "success"],
        [
            "first quarter %",
            "last quarter %",
            "steps",
            "tokens",
            "repeated %",
            "malformed %",
        ],
    )
    kinds = grouped(entry for one in iterations for entry in one.kinds.items())
    for kind in sorted(kinds):
        table.add(_loop_cells(kind, kinds[kind]))
    table.add(_loop_cells("all", iterations), style="bold")
    return table


def _loop_cells(kind: str, every: Sequence[Results]) -> list[str]:
    shares = [results.success.rate for results in every]
    quarters = course(shares)
    last = every[-1]
    return [
        kind,
        sparkline(course(shares, parts=LONGEST_COURSE)),
        percent(quarters[0]),
        percent(quarters[-1]),
        f"{last.steps:.1f}",
        f"{last.tokens:.0f}",
        percent(last.repetitive),
        percent(last.malformed),
    ]


def _loop_evaluations(evaluated: Sequence[IterationOverview]) -> Blocks:
    """A row for each evaluation that a loop made of its policy."""
    table = Blocks("evaluations in the loop", ["after", "label"], ["success %"])
    for one in evaluated:
        for label, success in one.evaluated.items():
            table.add([Path(one.folder).name, label, percent(success)])
    return table


def evaluations_table(evaluations: Sequence[EvaluationSummary]) -> Blocks:
    """The evaluations of a run: of which model, at which temperature, on which panel."""
    heads = ["T", "samples", "episodes", SUCCESS, SCORE, "steps"]
    table = Blocks("evaluations", ["label", "model", "panel"], heads)
    for summary in evaluations:
        cells = [
            summary.label,
            summary.model or summary.policy,
            f"{summary.panel.name}: {summary.panel.tasks}",
            f"{summary.temperature:g}",
            str(summary.samples),
            str(summary.episodes),
            rate(summary.success),
            f"{summary.score:.3f}",
            f"{summary.steps:.1f}",
        ]
        table.add(cells)
    if not any(map(is_graded, evaluations)):
        table.leave_out(SCORE)
    return table


def kinds_table(trees: Sequence[TreeOverview]) -> Blocks:
    """Success by task kind."""
    heads = ["trees", "trajectories", "success %", SCORE, "steps"]
    table = Blocks("trees by kind", ["kind"], heads)
    for kind in sorted({tree.kind for tree in trees}):
        group = [tree for tree in trees if tree.kind == kind]
        trajectories = success = steps = 0
        for tree in group:
            trajectories += tree.trajectories
            success += tree.success
            steps += tree.steps
        scores = sum(tree.score * tree.trajectories for tree in group)
        divisor = max(1, trajectories)
        cells = [
            kind,
            str(len(group)),
            str(trajectories),
            percent(success / divisor),
            f"{scores / divisor:.3f}",
            str(steps),
        ]
        table.add(cells)
    if not any(map(_is_graded, trees)):
        table.leave_out(SCORE)
    return table


def _is_graded(tree: TreeOverview) -> bool:
    return not isclose(tree.score, tree.share, abs_tol=1e-9)


def trees_table(trees: Sequence[TreeOverview], *, whole: bool = False) -> Blocks:
    """The trees, a row each, in their order.

    A column of costs that says the same of every tree is left out.
    """
    heads = ["succeed", SCORE, "steps", "forks", "tokens"]
    table = Blocks("trees, failures first", ["line", "kind", "task", "ended"], heads)
    for tree in trees if whole else trees[:MOST_TREES]:
        endings = list(tree.endings)
        # A single ending is that of all trajectories.
        if len(endings) > 1:
            endings = [f"{count} {name}" for name, count in tree.endings.items()]
        cells = [
            str(tree.line),
            tree.kind,
            tree.instruction,
            ", ".join(endings),
            f"{tree.success} of {tree.trajectories}",
            f"{tree.score:.3f}",
            str(tree.steps),
            str(tree.forks),
            str(tree.tokens),
        ]
        table.add(cells, style=share_style(tree.success, tree.trajectories))
    if not any(map(_is_graded, trees)):
        table.leave_out(SCORE)
    # How a single trajectory ended says whether it succeeded.
    if all(tree.trajectories == 1 for tree in trees):
        table.leave_out("succeed")
    table.leave_out_constant("steps", "forks", "tokens")
    return table


def fork_line(shares: Sequence[float]) -> Text:
    """Where the forks fall."""
    bands = []
    for name, share in fork_bands(shares).items():
        bands.append(f"{name}: {percent(share)}")
    words = ", ".join(bands)
    median = median_depth(shares)
    return Text(f"forks % by the steps before them: {words}; median {median}")


def run_view(
    holdings: RunHoldings, now: datetime, *, whole: bool
) -> Iterator[Blocks | Text]:
    """Everything about one run that is there, from the whole to its parts."""
    if holdings.stages:
        yield stages_table(holdings.run, holdings.stages, now)
    if holdings.unfinished:
        yield Text(
            f"begun and not ended: {', '.join(map(printable, holdings.unfinished))}"
        )
    if holdings.iterations:
        yield loop_line(holdings.iterations)
        yield _loop_kinds([one.results for one in holdings.iterations])
    evaluated = [one for one in holdings.iterations if one.evaluated]
    if evaluated:
        yield _loop_evaluations(evaluated)
    if holdings.evaluations:
        yield evaluations_table(holdings.evaluations)
    if holdings.outdated:
        labels = ", ".join(map(printable, holdings.outdated))
        yield Text(f"of weights that were trained anew since: {labels}")
    if not holdings.trees:
        return
    yield kinds_table(holdings.trees)
    if holdings.forks_by_depth:
        yield fork_line(holdings.forks_by_depth)
    yield trees_table(holdings.trees, whole=whole)
    hidden = 0 if whole else len(holdings.trees) - MOST_TREES
    if hidden > 0:
        yield Text(f"... {hidden} more trees; --all shows them")


def age(finished: str | None, now: datetime) -> str:
    """How long ago a UTC time was: "3 hours ago"; "-" for none."""
    if finished is None:
        return "-"
    then = datetime.fromisoformat(finished).astimezone(UTC)
    seconds = (now - then).total_seconds()
    for name, length in UNITS:
        number = int(seconds // length)
        if number >= 1:
            plural = "s" if number > 1 else ""
            return f"{number} {name}{plural} ago"
    return "just now"


LONGEST_THOUGHT = 60
"""Characters of a thought that are shown."""


def shares_table(file: str, shares: Sequence[CallShares]) -> Blocks:
    """The share of each tool at every step, in percent (Rare-tool Figure 5)."""
    together, *steps = shares
    columns = ["all", *(f"step {one.step}" for one in steps)]
    table = Blocks(f"calls in {file}, in %", ["tool"], columns)
    for name in together.calls:
        cells = [name]
        for one in shares:
            total = sum(one.calls.values())
            calls = one.calls.get(name, 0)
            cells.append(percent(calls / max(1, total)))
        table.add(cells)
    entropies = [f"{one.entropy:.2f}" for one in shares]
    trajectories = [str(one.trajectories) for one in shares]
    table.add(["entropy, nats", *entropies], style="bold")
    table.add(["trajectories", *trajectories])
    return table


def steps_table(shown: ShownTree) -> Blocks:
    """The calls of one tree with what the judge said of them (Rare-tool Table 1)."""
    title = f"{shown.place}  {shown.tree.task.id}"
    table = Blocks(
        title,
        ["thought", "tool", "query"],
        ["step", "LINE:STEP", "chosen", "best", "process ok"],
    )
    for step, before in zip(shown.tree.steps, depths(shown.tree), strict=True):
        # Counted from 1, as in the table of a whole run.
        place = str(before + 1)
        name = f"{shown.line}:{step.id}"
        table.add([*_words(step), place, name, *_judgement(step)])
    return table


def _words(step: Step) -> Iterator[str]:
    """Thought, tool and query."""
    # The text of the first tag; a response without tags has none.
    opened = step.response.partition(">")[2]
    thought = one_line(opened.partition("</")[0].strip())
    if len(thought) > LONGEST_THOUGHT:
        thought = f"{thought[:LONGEST_THOUGHT]}..."
    yield thought
    call = read_call(step.action or "")
    if call is None:
        yield "-"
        yield step.action or "-"
    else:
        yield call.name
        yield call.argument


def _judgement(step: Step) -> Iterator[str]:
    """What the judge said of the call."""
    for name in ("chosen", "best", "process_ok"):
        note = step.notes.get(name, "-")
        if isinstance(note, str):
            yield one_line(note)
        elif name == "process_ok":
            yield "yes" if note else "no"
        else:
            yield f"{note:.1f}"


def advice_table(file: str, traits: Sequence[tuple[str, float, str]]) -> Blocks:
    """Measurements of trees in percent, and what follows from them."""
    table = Blocks(file, ["measured", "what then helps"], ["%"])
    for measured, share, advice in traits:
        table.add([measured, advice or "-", percent(share)])
    return table
