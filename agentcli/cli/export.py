"""The command `agentcli export`."""

from functools import partial
from pathlib import Path

from agentcli.cli import completion
from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, file_option
from agentcli.cli.completion import fixed
from agentcli.cli.options import OVERWRITE, REPORTING, RUN_ARGUMENT

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


COMMAND = Command(
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
