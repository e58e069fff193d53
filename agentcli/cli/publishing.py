"""The commands `agentcli export` and `push`: a run for others."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.cli import completion
from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, file_option
from agentcli.cli.completion import fixed
from agentcli.cli.options import OVERWRITE, REPORTING, RUN_ARGUMENT
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from agentcli.stages.push import PushPlan

form_option = partial(Option, panel="Form")

TO = form_option(
    "--to",
    "parquet: a row a step. messages, preferences: chats for TRL's SFT and DPO. "
    "conversations: a trajectory a line, with its reward, for `import`. model: the "
    "checkpoint, an adapter merged into its base. card: the model card.",
    str,
    "FORM",
    fixed("parquet", "messages", "conversations", "preferences", "model", "card"),
)
CREDIT = form_option(
    "--credit",
    "parquet, conversations: advantages of this method; RUN's only credit without it.",
    metavar="NAME",
    values=completion.credit_files,
)
EVALUATION = form_option(
    "--evaluation",
    "The trees that an evaluation kept, by its label, in the place of RUN's own.",
    metavar="LABEL",
)
ALL = form_option("--all", "messages: failed trajectories too.", bool)
PAIRS = form_option(
    "--pairs",
    "preferences: at most N pairs of trajectories a tree; 8 without it.",
    int,
    least=1,
)
DTYPE = form_option(
    "--dtype",
    "model: type of the weights; float32 without it, as they were trained.",
    metavar="NAME",
    values=completion.dtypes,
)
FILE = file_option(
    "--out -o", "Where to write; without it a file in RUN/export.", Path, "FILE"
)


def export(call: Call) -> None:
    """Convert the contents of RUN into a form that other tools read.

    A table of steps, chats for other trainers, a plain model, or a model card.
    """
    from agentcli.reports.output import print_preview, print_written
    from agentcli.stages.export import perform, plan

    export_plan = plan(
        call.place.run,
        call.values["to"],
        call.values["out"],
        credit=call.values["credit"],
        evaluation=call.values["evaluation"],
        everything=call.values["all"],
        pairs=call.values["pairs"],
        dtype=call.values["dtype"],
    )
    call.refuse_existing(export_plan.out)
    if call.dry:
        print_preview(
            "export",
            export_plan.choices,
            export_plan.inputs(),
            [str(export_plan.out)],
            export_plan.counts(),
            json=call.values["json"],
        )
        return
    counts = perform(export_plan, call.progress)
    print_written(
        "export",
        export_plan.out,
        counts,
        json=call.values["json"],
        quiet=call.values["quiet"],
    )


EXPORT = Command(
    name="export",
    body=export,
    options=(
        RUN_ARGUMENT,
        TO,
        CREDIT,
        EVALUATION,
        ALL,
        PAIRS,
        DTYPE,
        FILE,
        OVERWRITE,
        *REPORTING,
    ),
    example="agentcli export runs/x --to parquet",
)


hub_option = partial(Option, panel="Hub")

PUSHED_ARGUMENT = Option("run", "Run directory whose model is uploaded.", Path)
REPO_ARGUMENT = Option("repo", "Its name on the hub: USER/NAME.")
PRIVATE = hub_option("--private", "Make a new repository private.", bool)
FOLDER = hub_option(
    "--folder",
    "Upload this model in the place of RUN/checkpoint, for instance RUN/export/model.",
    Path,
    "DIR",
)
CARD = hub_option(
    "--card",
    "Upload this card in the place of the one that is made from the manifests.",
    Path,
    "FILE",
)


def push(call: Call) -> None:
    """Upload the model of RUN to the Hugging Face hub, with a model card.

    The card is generated from the manifests: base model, methods, success with
    intervals, commands and versions. --dry-run prints the card and lists the files.
    """
    from agentcli.reports.output import print_written
    from agentcli.stages.push import perform, plan
    from agentcli.stages.resolve import find_run

    run, repo = call.values["run"], call.values["repo"]
    if run is None or repo is None:
        raise UsageError("name run and repository: agentcli push RUN USER/NAME")
    push_plan = plan(
        find_run(run),
        repo,
        folder=call.values["folder"],
        card=call.values["card"],
        private=call.values["private"],
    )
    if call.dry:
        _print_plan(call, push_plan)
        return
    quiet, json = call.values["quiet"], call.values["json"]
    url = perform(push_plan, bars=sys.stderr.isatty() and not (quiet or json))
    print_written("push", url, push_plan.counts(), json=json, quiet=quiet)


def _print_plan(call: Call, push_plan: "PushPlan") -> None:
    """Prints what would be uploaded, including the text of the card."""
    from agentcli.reports.output import print_preview

    json = call.values["json"]
    settings: dict[str, Any] = {"repo": push_plan.repo, "private": push_plan.private}
    if json:
        settings["card"] = push_plan.card
    model = {"model": push_plan.folder}
    counts = push_plan.counts()
    print_preview("push", settings, model, push_plan.names, counts, json=json)
    if not json:
        print(f"card:\n\n{push_plan.card}", end="")


PUSH = Command(
    name="push",
    body=push,
    options=(PUSHED_ARGUMENT, REPO_ARGUMENT, PRIVATE, FOLDER, CARD, *REPORTING),
    example="agentcli push runs/rl me/quickstart-grpo --dry-run",
)
"""The example is a dry run, so that it works without an account."""
