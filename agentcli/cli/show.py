"""The command `agentcli show`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option
from agentcli.cli.options import JSON
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from agentcli.records.types import Tree
    from agentcli.reports.show.runs import RunHoldings, RunOverview
    from agentcli.reports.show.trees import ShownTree

Measured = TypeVar("Measured")

view_option = partial(Option, panel="What is shown")

RUN_ARGUMENT = Option("run", "Run directory; without it, the runs below runs/.", Path)
TREE_ARGUMENT = Option(
    "tree",
    "One tree: its line in trees.jsonl, its task id, or a part of that.",
    metavar="TREE",
)
TRAJECTORY = view_option(
    "--trajectory",
    "One trajectory of the tree as a chat; they are numbered from 1.",
    int,
)
STEP = view_option(
    "--step",
    "Everything about one step: the tree's line and the step's number, or the number "
    "alone beside TREE.",
    metavar="[LINE:]STEP",
)
CREDIT = view_option(
    "--credit",
    "Advantages of this method. Without it: of the only credit that RUN holds.",
    metavar="NAME",
)
EVALUATION = view_option(
    "--evaluation",
    "The trees that an evaluation kept, by its label, in the place of RUN's own.",
    metavar="LABEL",
)
BESIDE = view_option(
    "--beside", "Show the tree of the same task in another run beside it.", Path, "RUN"
)
FAILED = view_option(
    "--failed", "List only trees with a trajectory that did not succeed.", bool
)
KIND = view_option("--kind", "List only trees of this kind of task.", metavar="NAME")
ALL = view_option("--all", "Leave nothing out.", bool)
CALLS = view_option(
    "--calls",
    "How often each tool is called at each step; with TREE its calls one by one.",
    bool,
)

ADVICE = view_option(
    "--advice",
    "What the trees say about which method can help (docs/which-method.md).",
    bool,
)
CRITICALITY = view_option(
    "--criticality",
    "How much each action decides, from trees of --method criticality (CARL eq. 5).",
    bool,
)

Shown = tuple[Sequence[Any], Callable[[], Iterable[Any]]]
"""The lines of --json, and a function that gives what is printed without it."""

APART = (
    ("credit", "evaluation", "evaluations have no credit"),
    ("beside", "json", "it draws two trees"),
    ("beside", "trajectory", "it draws two trees"),
)
"""Pairs of options that exclude each other, and why."""


def show(call: Call) -> None:
    """Look at runs, trees and trajectories.

    Without RUN, lists the runs; with RUN, lists its contents, failures first. With
    TREE, draws that tree, each step with its advantage. Green is success, red failure,
    blue a positive advantage, orange a negative one.
    """
    typed = set(filter(call.is_typed, call.values))
    view = _view(typed)
    _refuse_without_effect(typed, view)
    lines, parts = VIEWS[view][0](call)
    from agentcli.reports.output import console, print_json

    if call.values["json"]:
        for line in lines:
            print_json(line)
        return
    out = console()
    for part in parts():
        out.print(part)


def _view(typed: set[str]) -> str:
    """The view that the options ask for."""
    if "run" not in typed:
        return "all runs"
    if "step" in typed:
        return "one step (--step)"
    if "calls" in typed:
        return "calls of tools (--calls)"
    for measured in ("advice", "criticality"):
        if measured in typed:
            return f"{measured} (--{measured})"
    return "a tree (TREE)" if "tree" in typed else "a run"


def _refuse_without_effect(typed: set[str], view: str) -> None:
    """Raises UsageError for an option of another view, and for two that conflict."""
    for one, other, reason in APART:
        if {one, other} <= typed:
            raise UsageError(f"--{one} has no effect with --{other}: {reason}")
    for option in COMMAND.options:
        if option.name in typed and option.name not in (*VIEWS[view][1], "json"):
            fits = [
                other for other, (_, takes) in VIEWS.items() if option.name in takes
            ]
            raise UsageError(
                f"{option.shown} has no effect on {view}; it is for {' or '.join(fits)}: "
                "agentcli show RUN [TREE]"
            )


def runs_here() -> "list[RunOverview]":
    """The runs below runs/. Raises UsageError if there are none."""
    from agentcli.reports.show.runs import runs_below
    from agentcli.stages.resolve import RUNS

    runs = runs_below(RUNS) if RUNS.is_dir() else []
    if not runs:
        raise UsageError(
            "no runs here; make one with: agentcli demos --preset quickstart"
        )
    return runs


def _show_runs(call: Call) -> Shown:
    from datetime import UTC, datetime

    from agentcli.reports.show.run_tables import runs_table
    from agentcli.stages.resolve import RUNS

    runs = runs_here()
    return runs, lambda: [runs_table(str(RUNS), runs, datetime.now(UTC))]


def _show_run(call: Call) -> Shown:
    from agentcli.records.siblings import shares_by_depth
    from agentcli.reports.show.runs import holdings
    from agentcli.reports.show.trees import tree_overviews, trees_file
    from agentcli.stages.trees import note_lost_trees

    run = call.place.run
    held = holdings(run)
    if call.values["evaluation"] or call.values["failed"] or call.values["kind"]:
        # If only certain trees are asked for, show nothing else.
        held.stages, held.unfinished = [], []
        held.iterations, held.evaluations, held.outdated = [], [], []
    elif not any(run.glob("trees.jsonl*")):
        held.trees = None
    if held.trees is not None:
        file = trees_file(run, call.values["evaluation"])
        failed, kind = call.values["failed"], call.values["kind"]
        held.trees = tree_overviews(file, failed=failed, kind=kind)
        depths = [depth for tree in held.trees for depth in tree.fork_depths]
        held.forks_by_depth = shares_by_depth(depths)
        if file.parent == run and not (failed or kind):
            note_lost_trees(file, len(held.trees), call.progress)
    return [held], partial(_run_parts, call, held)


def _run_parts(call: Call, held: "RunHoldings") -> Iterator[Any]:
    """What a run holds, and then a note on what to type next."""
    from datetime import UTC, datetime

    from agentcli.reports.show.run_tables import run_view

    parts = list(run_view(held, datetime.now(UTC), whole=call.values["all"]))
    yield from parts
    if not parts:
        place = call.place.run
        said = f"{place}: nothing of what was asked for"
        # The folder of a study has its runs below those of the seeds.
        below = sorted(path.parent for path in place.glob("*/*/manifest.json"))
        if below:
            said = (
                f"{place}: holds no run itself; show one below it, such as {below[0]}"
            )
        call.progress.note(said)
    elif call.values["failed"] and held.trees:
        call.progress.note(_beside_line(call, held.trees[0].line))


def _beside_line(call: Call, line: int) -> str:
    """The command that shows a failed task as another run played it."""
    from shlex import join

    from agentcli.reports.show.runs import counterpart
    from agentcli.reports.show.trees import trees_file

    run = call.place.run
    evaluation = call.values["evaluation"]
    words = ["show", str(run), str(line)]
    if evaluation:
        words += ["--evaluation", evaluation]
    other = counterpart(run, trees_file(run, evaluation)) or "RUN"
    words += ["--beside", str(other)]
    return f"one of them, before and after: agentcli {join(words)}"


def _find(call: Call, run: Path, tree: str, *, exact: bool = False) -> "ShownTree":
    """A tree of a run with its credit; trees of evaluations have no credit."""
    from agentcli.records.runs import RunDirectory
    from agentcli.reports.show.trees import add_credit, find_tree, trees_file

    evaluation = call.values["evaluation"]
    shown = find_tree(trees_file(run, evaluation), tree, exact=exact)
    if evaluation is None:
        file = add_credit(shown, run, call.values["credit"])
        fault = file and RunDirectory(run).other_trees(file)
        if fault:
            call.progress.note(f"warning: {file}: {fault}")
    return shown


def _show_calls(call: Call) -> Shown:
    from agentcli.evaluation.calls import call_shares
    from agentcli.records.files import read_records
    from agentcli.records.types import Tree
    from agentcli.reports.show.run_tables import shares_table, steps_table
    from agentcli.reports.show.trees import trees_file

    if call.values["tree"] is not None:
        shown = _find(call, call.place.run, call.values["tree"])
        steps = shown.tree.steps
        rows = [{"action": step.action, "notes": step.notes} for step in steps]
        return rows, lambda: [steps_table(shown)]
    file = trees_file(call.place.run, call.values["evaluation"])
    shares = call_shares(read_records(file, Tree))
    return shares, lambda: [shares_table(str(file), shares)]


def _show_advice(call: Call) -> Shown:
    from msgspec.structs import asdict

    from agentcli.analysis.advice import measure, redraws, traits
    from agentcli.records.runs import RunDirectory, loop_folders
    from agentcli.reports.show.run_tables import advice_table
    from agentcli.reports.show.trees import trees_file

    evaluation = call.values["evaluation"]
    run = call.place.run
    # A loop is measured where it began: there its methods can still be chosen.
    begun = loop_folders(run) if evaluation is None else []
    grown = begun[0] if begun else run
    file = trees_file(grown, evaluation)
    # Evaluations draw nothing again.
    redrawn = evaluation is None and redraws(RunDirectory(grown))
    found = _measured(partial(measure, redrawn=redrawn), file)
    said = list(traits(found))
    advice = {trait.measured: trait.advice for trait in said if trait.advice}
    row = {**asdict(found), "advice": advice}
    return [row], lambda: [advice_table(str(file), said)]


def _show_criticality(call: Call) -> Shown:
    from agentcli.analysis.criticality import criticality_tables, measure
    from agentcli.reports.show.trees import trees_file

    file = trees_file(call.place.run, None)
    found = _measured(measure, file)
    return [found], partial(criticality_tables, str(file), found)


def _measured(measure: Callable[[Iterable["Tree"]], Measured], file: Path) -> Measured:
    """What `measure` finds in the trees of a file; its ValueError then names the file."""
    from agentcli.errors import DataError
    from agentcli.records.trees import read_trees

    try:
        # Validated: a step whose parent is not there would be walked for ever.
        return measure(tree for _, tree in read_trees(file))
    except DataError:
        # It names the file already.
        raise
    except ValueError as error:
        raise DataError(f"{file}: {error}") from error


def _show_tree(call: Call) -> Shown:
    from agentcli.reports.show.drawing import side_by_side, tree_drawing
    from agentcli.stages.resolve import find_run

    shown = _find(call, call.place.run, call.values["tree"])
    if call.values["trajectory"] is not None:
        return _show_trajectory(call, shown)
    whole = call.values["all"]
    if call.values["beside"] is None:
        return [shown], lambda: [tree_drawing(shown, whole=whole)]
    beside = find_run(call.values["beside"])
    other = _find(call, beside, shown.tree.task.id, exact=True)
    return [], lambda: [side_by_side(shown, other, whole=whole)]


def _show_trajectory(call: Call, shown: "ShownTree") -> Shown:
    from agentcli.records.trees import leaves, path
    from agentcli.reports.show.chat import chat

    number = call.values["trajectory"]
    ends = leaves(shown.tree)
    if not 1 <= number <= len(ends):
        raise UsageError(
            f"--trajectory {number}: {shown.file}:{shown.line} has the trajectories 1 "
            f"to {len(ends)}"
        )
    steps = path(shown.tree, ends[number - 1])
    return steps, partial(chat, shown, steps, number)


def _show_step(call: Call) -> Shown:
    from agentcli.records.trees import step_range
    from agentcli.reports.show.chat import step_details

    wanted = call.values["step"]
    line, _, digits = wanted.rpartition(":")
    tree = call.values["tree"]
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
    if is_number and line and tree is not None:
        raise UsageError(
            f"--step {wanted}: TREE names the tree already; write --step {digits}"
        )
    if not is_number or not (line or tree):
        raise UsageError(
            f"--step {wanted}: write LINE:STEP, for instance --step 1:0, or the step's "
            "number after TREE"
        )
    shown = _find(call, call.place.run, line or tree)
    number = int(digits)
    if number >= len(shown.tree.steps):
        raise UsageError(
            f"--step {wanted}: {shown.file}:{shown.line} has {step_range(shown.tree)}"
        )
    step = shown.tree.steps[number]
    data = {"step": step, "credit": shown.rows.get(number, [])}
    return [data], partial(step_details, shown, step)


VIEWS = {
    "all runs": (_show_runs, ()),
    "a run": (_show_run, ("run", "evaluation", "failed", "kind", "all")),
    "a tree (TREE)": (
        _show_tree,
        ("run", "tree", "evaluation", "credit", "trajectory", "beside", "all"),
    ),
    "one step (--step)": (_show_step, ("run", "tree", "step", "evaluation", "credit")),
    "calls of tools (--calls)": (_show_calls, ("run", "tree", "calls", "evaluation")),
    "advice (--advice)": (_show_advice, ("run", "advice", "evaluation")),
    "criticality (--criticality)": (_show_criticality, ("run", "criticality")),
}
"""What shows each view, and the options that it takes; --json works with all of them."""

COMMAND = Command(
    name="show",
    body=show,
    options=(
        RUN_ARGUMENT,
        TREE_ARGUMENT,
        TRAJECTORY,
        STEP,
        CREDIT,
        EVALUATION,
        BESIDE,
        FAILED,
        KIND,
        ALL,
        CALLS,
        ADVICE,
        CRITICALITY,
        JSON,
    ),
    example="agentcli show runs/x 4 --credit rewardflow",
)
