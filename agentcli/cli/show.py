"""The command `agentcli show`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.cli.command import Call, Command
from agentcli.cli.options import JSON, Option
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from agentcli.reports.show.trees import ShownTree

PANEL = "What is shown"

RUN = Option(
    "run", (), Path, "Run directory; without it, the runs below runs/.", metavar="RUN"
)
TREE = Option(
    "tree",
    (),
    str,
    "One tree: its line in trees.jsonl, its task id, or a part of that.",
    metavar="TREE",
)
TRAJECTORY = Option(
    "trajectory",
    ("--trajectory",),
    int,
    "One trajectory of the tree as a chat; they are numbered from 1.",
    panel=PANEL,
    metavar="N",
)
STEP = Option(
    "step",
    ("--step",),
    str,
    "Everything about one step: the tree's line and the step's number.",
    panel=PANEL,
    metavar="LINE:STEP",
)
CREDIT = Option(
    "credit",
    ("--credit",),
    str,
    "Advantages of this method. Without it: of the only credit that RUN holds.",
    panel=PANEL,
    metavar="NAME",
)
BESIDE = Option(
    "beside",
    ("--beside",),
    Path,
    "Show the tree of the same task in another run beside it.",
    panel=PANEL,
    metavar="RUN",
)
FAILED = Option(
    "failed",
    ("--failed",),
    bool,
    "List only trees with a trajectory that did not succeed.",
    panel=PANEL,
)
KIND = Option(
    "kind",
    ("--kind",),
    str,
    "List only trees of this kind of task.",
    panel=PANEL,
    metavar="NAME",
)
ALL = Option("all", ("--all",), bool, "Leave nothing out.", panel=PANEL)

OF_A_TREE = ("trajectory", "beside")
OF_A_LIST = ("failed", "kind")


def show(call: Call) -> None:
    """Look at runs, trees and trajectories.

    Without RUN it lists the runs, with RUN what it holds, failures first; with TREE it
    draws that tree, each step with its advantage. Green is success, red failure, blue a
    gain, orange a loss.
    """
    _refuse_without_effect(call.values)
    if call.values["run"] is None:
        _show_runs(call)
    elif call.values["step"] is not None:
        _show_step(call)
    elif call.values["tree"] is not None:
        _show_tree(call)
    else:
        _show_run(call)


def _refuse_without_effect(values: dict[str, Any]) -> None:
    """Raises UsageError for an option of a view that was not asked for."""
    one_tree = values["tree"] is not None
    for names, fits, remedy in (
        (OF_A_TREE, one_tree, "name one: agentcli show RUN TREE"),
        (OF_A_LIST, not one_tree, "leave out TREE to list the trees"),
    ):
        for name in names:
            if values[name] and not fits:
                raise UsageError(f"--{name} has no effect here; {remedy}")
    if values["run"] is None and any(
        values[name] for name in (*OF_A_LIST, "step", "credit", "all")
    ):
        raise UsageError("name the run to show: agentcli show RUN")


def _show_runs(call: Call) -> None:
    from datetime import UTC, datetime

    from agentcli.reports.output import data_console, print_json
    from agentcli.reports.show.run_tables import runs_table
    from agentcli.reports.show.runs import runs_below
    from agentcli.stages.resolve import RUNS

    runs = runs_below(RUNS) if RUNS.is_dir() else []
    if not runs:
        raise UsageError(
            "no runs here; make one with: agentcli demos --preset quickstart"
        )
    if call.values["json"]:
        for run in runs:
            print_json(run)
        return
    data_console().print(runs_table(str(RUNS), runs, datetime.now(UTC)))


def _show_run(call: Call) -> None:
    from datetime import UTC, datetime

    from agentcli.reports.output import data_console, print_json
    from agentcli.reports.show import runs
    from agentcli.reports.show.run_tables import run_view
    from agentcli.reports.show.trees import tree_overviews

    run = call.run
    kind, failed = call.values["kind"], call.values["failed"]
    has_trees = any(run.glob("trees.jsonl*"))
    trees = tree_overviews(run, failed=failed, kind=kind) if has_trees else []
    if (kind or failed) and not has_trees:
        from agentcli.records.runs import RunDirectory

        RunDirectory(run).existing_trees()
    stages = runs.stage_overviews(run)
    iterations = runs.iterations(run)
    evaluations = runs.evaluations(run)
    if call.values["json"]:
        print_json(
            {
                "run": str(run),
                "stages": stages,
                "iterations": iterations,
                "evaluations": evaluations,
                "trees": trees,
            }
        )
        return
    console = data_console()
    for part in run_view(
        str(run),
        stages,
        iterations,
        evaluations,
        trees,
        now=datetime.now(UTC),
        whole=call.values["all"],
    ):
        console.print(part)


def _show_tree(call: Call) -> None:
    from agentcli.reports.output import data_console, print_json
    from agentcli.reports.show.drawing import side_by_side, tree_drawing
    from agentcli.reports.show.trees import find_tree

    shown = find_tree(call.run, call.values["tree"], call.values["credit"])
    if call.values["trajectory"] is not None:
        _show_trajectory(call, shown)
        return
    if call.values["json"]:
        print_json(shown)
        return
    whole = call.values["all"]
    if call.values["beside"] is None:
        data_console().print(tree_drawing(shown, whole=whole))
        return
    other = find_tree(call.values["beside"], shown.tree.task.id, call.values["credit"])
    data_console().print(side_by_side(shown, other, whole=whole))


def _show_trajectory(call: Call, shown: "ShownTree") -> None:
    from agentcli.records.trees import paths
    from agentcli.reports.output import data_console, print_json
    from agentcli.reports.show.chat import chat

    number = call.values["trajectory"]
    trajectories = paths(shown.tree)
    if not 1 <= number <= len(trajectories):
        raise UsageError(
            f"--trajectory {number}: {shown.file}:{shown.line} has the trajectories 1 "
            f"to {len(trajectories)}"
        )
    steps = trajectories[number - 1]
    if call.values["json"]:
        for step in steps:
            print_json(step)
        return
    console = data_console()
    for part in chat(shown, steps, number):
        console.print(part)


def _show_step(call: Call) -> None:
    from agentcli.reports.output import data_console, print_json
    from agentcli.reports.show.chat import step_details
    from agentcli.reports.show.trees import find_tree

    wanted = call.values["step"]
    line, colon, digits = wanted.rpartition(":")
    if not (colon and line and digits.isascii() and digits.isdigit()):
        raise UsageError(f"--step {wanted}: write LINE:STEP, for instance --step 1:0")
    shown = find_tree(call.run, line, call.values["credit"])
    number = int(digits)
    if number >= len(shown.tree.steps):
        raise UsageError(
            f"--step {wanted}: {shown.file}:{shown.line} has the steps 0 to "
            f"{len(shown.tree.steps) - 1}"
        )
    step = shown.tree.steps[number]
    if call.values["json"]:
        print_json({"step": step, "credit": shown.rows.get(number, [])})
        return
    data_console().print(step_details(shown, step))


COMMAND = Command(
    name="show",
    body=show,
    arguments=(RUN, TREE),
    options=(TRAJECTORY, STEP, CREDIT, BESIDE, FAILED, KIND, ALL, JSON),
    example="agentcli show runs/x 4 --credit rewardflow",
)
