"""The command `agentcli import`."""

from functools import partial
from pathlib import Path

from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option
from agentcli.cli.completion import fixed
from agentcli.cli.options import OUT, OVERWRITE, REPORTING

form_option = partial(Option, panel="Form")

FILE_ARGUMENT = Option("file", "File of trajectories.", Path)
FROM = form_option(
    "--from",
    "verifiers: traces.jsonl. messages: a chat a line, with `reward`, and if it has them "
    "`success` and `group`. inspect: a log, .eval or .json.",
    str,
    "FORMAT",
    fixed("verifiers", "messages", "inspect"),
)
STATES = form_option(
    "--states",
    "What stands for a state that the file lacks. none: nothing, and methods that "
    "compare states refuse. observation: a hash of the last observation.",
    str,
    "none|observation",
    fixed("none", "observation"),
)
SUCCESS = form_option(
    "--success",
    "The reward from which a trajectory without a verdict is a success; 1 without it.",
    float,
)
SCORE = form_option(
    "--score",
    "inspect: the score that is the reward; the first without it.",
    str,
    "NAME",
)


def import_file(call: Call) -> None:
    """Read trajectories that another program rolled out, as a run.

    To look at them, credit them, compare methods on them, export them, and train on
    them if they have token ids. Nothing can play their world.
    """
    from agentcli.stages.imports import perform, plan

    import_plan = plan(
        call.values["file"],
        call.values["from_"],
        call.place.new_run(),
        states=call.values["states"],
        success=call.values["success"],
        score=call.values["score"],
    )
    call.carry_out(import_plan, perform, import_plan.settings)


COMMAND = Command(
    name="import",
    body=import_file,
    options=(FILE_ARGUMENT, FROM, STATES, SUCCESS, SCORE, OUT, OVERWRITE, *REPORTING),
    example="agentcli import runs/x/export/conversations.jsonl --from messages -o runs/i",
)
