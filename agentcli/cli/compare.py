"""The command `agentcli compare`."""

from pathlib import Path
from shlex import join

from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, file_option
from agentcli.cli.options import JSON, ONLY_ANSWER

RUNS_ARGUMENT = Option(
    "runs",
    "Run directories, or evaluation files; the first is the reference. A side of "
    "several seeds is a list with commas, or a pattern in quotes ('runs/a-*').",
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
    loops. With several runs a side: gains over seeds, paired by the recorded seed, in
    evaluations and in the loops' course.
    """
    from agentcli.analysis import compare as analysis
    from agentcli.records.faults import printable
    from agentcli.reports.comparison import comparison_tables
    from agentcli.reports.output import print_answer

    labels = call.values["label"] or []
    sides = [analysis.read_side(place) for place in call.values["runs"] or []]
    places = [run for side in sides for run in side.runs]
    if len(places) > len(sides):
        # Statistics over seeds take a second to load.
        from agentcli.analysis.sides import compare_sides

        found = compare_sides(sides, labels, call.progress)
        print_answer(found, comparison_tables, json=call.values["json"])
        return
    comparison = analysis.compare(places, labels, call.progress)
    print_answer(comparison, comparison_tables, json=call.values["json"])
    if all(place.is_dir() for place in places) and not call.values["json"]:
        words = ["agentcli", "view", *map(str, places)]
        print(f"\ntask by task, as a page: {printable(join(words))}")


COMMAND = Command(
    name="compare",
    body=compare,
    options=(RUNS_ARGUMENT, LABEL, JSON, ONLY_ANSWER),
    example=(
        "agentcli compare runs/x/evaluation/L2.json "
        "runs/x/evaluation/test-time-branch-L2.json"
    ),
)
