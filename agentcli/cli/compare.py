"""The command `agentcli compare`."""

from pathlib import Path

from agentcli.cli.command import Call, Command
from agentcli.cli.options import JSON, QUIET, Option

PLACES = Option(
    "places",
    (),
    list[Path],
    "Run directories, or evaluation files; the first is the reference.",
    metavar="RUN...",
)
LABELS = Option(
    "labels",
    ("--label",),
    list[str],
    "Compare these evaluations; repeatable. All that the runs share without it, and "
    "what trees and loops cost.",
    panel="Files and output",
    metavar="NAME",
)


def compare(call: Call) -> None:
    """Runs side by side on the same tasks.

    Success with paired tests against the first, tokens and steps relative to it,
    repetition and exploration, by task kind; and what trees, or whole loops, cost.
    """
    from agentcli.analysis.compare import compare as stage

    result = stage(
        call.values["places"] or [], call.values["labels"] or [], call.progress
    )
    from agentcli.reports.output import print_comparison

    print_comparison(result, json=call.values["json"])


COMMAND = Command(
    name="compare",
    body=compare,
    arguments=(PLACES,),
    options=(LABELS, JSON, QUIET),
    example=(
        "agentcli compare runs/x/evaluation/L2.json "
        "runs/x/evaluation/test-time-branch-L2.json"
    ),
)
