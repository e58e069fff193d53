"""The command `agentcli compare`."""

from pathlib import Path
from shlex import join

from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.option import Option, file_option
from agentcli.cli.options import JSON, QUIET

RUNS_ARGUMENT = Option(
    "runs",
    "Run directories, or evaluation files; the first is the reference.",
    list[Path],
    "RUN...",
)
LABEL = file_option(
    "--label",
    "Compare these evaluations; repeatable. All that the runs share without it, and "
    "what trees and loops cost.",
    list[str],
    "NAME",
)


def compare(call: Call) -> None:
    """Compare runs on the same tasks.

    Shows success with paired tests against the first run, tokens and steps relative to
    it, repetition and exploration, by kind of task; and the cost of trees, or of whole
    loops.
    """
    from agentcli.analysis import compare as analysis
    from agentcli.records.faults import printable
    from agentcli.reports.comparison import comparison_tables
    from agentcli.reports.output import print_answer

    places = call.values["runs"] or []
    labels = call.values["label"] or []
    comparison = analysis.compare(places, labels, call.progress)
    print_answer(comparison, comparison_tables, json=call.values["json"])
    if all(place.is_dir() for place in places) and not call.values["json"]:
        words = ["agentcli", "view", *map(str, places)]
        print(f"\ntask by task, as a page: {printable(join(words))}")


COMMAND = Command(
    name="compare",
    body=compare,
    options=(RUNS_ARGUMENT, LABEL, JSON, QUIET),
    example=(
        "agentcli compare runs/x/evaluation/L2.json "
        "runs/x/evaluation/test-time-branch-L2.json"
    ),
)
