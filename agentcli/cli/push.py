"""The command `agentcli push`."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option
from agentcli.cli.options import REPORTING
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from agentcli.stages.push import PushPlan

hub_option = partial(Option, panel="Hub")

RUN_ARGUMENT = Option("run", "Run directory whose model is uploaded.", Path)
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


COMMAND = Command(
    name="push",
    body=push,
    options=(RUN_ARGUMENT, REPO_ARGUMENT, PRIVATE, FOLDER, CARD, *REPORTING),
    example="agentcli push runs/rl me/quickstart-grpo --dry-run",
)
"""The example is a dry run, so that it works without an account."""
