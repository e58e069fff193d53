"""The commands `agentcli env ...`."""

import dataclasses

from agentcli.cli.command import Call, Command
from agentcli.cli.options import (
    DATA,
    DRY_RUN,
    JSON,
    LAYERS,
    MAX_STEPS,
    OUT,
    OVERWRITE,
    PANEL,
    QUIET,
    SEED,
    SPLIT,
    TASKS,
    WHERE,
    WORLD_ARGUMENT,
    Option,
)
from agentcli.errors import AgentCliError, UsageError

PLAYED = Option(
    "tasks",
    ("--tasks",),
    int,
    "Tasks to play, spread over the panel (6).",
    None,
    "World",
    "N",
)
OUT_FILE = dataclasses.replace(
    OUT, help="Where to write it; to stdout without it.", metavar="FILE"
)
WORLD_HERE = (DATA, SPLIT, PANEL, WHERE)


def list_worlds(call: Call) -> None:
    """The worlds there are, their splits and number of tasks."""
    import msgspec

    from agentcli.reports.output import print_rows
    from agentcli.stages.environment import list_worlds as stage

    print_rows("worlds", msgspec.to_builtins(stage()), json=call.values["json"])


def check(call: Call) -> None:
    """Play the expert on some tasks: each must end with the full reward and replay
    exactly.
    """
    tasks = 6 if call.values["tasks"] is None else call.values["tasks"]
    if tasks < 1:
        raise UsageError(f"--tasks {tasks}: play at least one task")
    settings = call.settings
    import msgspec

    from agentcli.reports.output import print_rows
    from agentcli.stages.environment import check as stage

    checked = stage(settings, tasks, call.progress)
    print_rows("check", msgspec.to_builtins(checked), json=call.values["json"])
    failed = [row for row in checked if row.problem is not None]
    if failed:
        raise AgentCliError(
            f"{len(failed)} of {len(checked)} tasks failed, first {failed[0].task}: "
            f"{failed[0].problem}"
        )


def panel(call: Call) -> None:
    """Print the panel of a split as JSON, narrowed by --where and --tasks; with -o
    write it as a file for --panel.
    """
    import msgspec

    from agentcli.records.files import write_json
    from agentcli.stages.environment import panel as stage

    found, out = stage(call.settings), call.values["out"]
    call.refuse_existing(out)
    if call.dry:
        outputs = [] if out is None else [out]
        call.print_plan(
            {"panel": call.settings.environment.panel},
            outputs,
            {"tasks": len(found.tasks)},
        )
        return
    if out is None:
        print(msgspec.json.encode(found).decode())
        return
    write_json(out, found)
    print(out)


COMMANDS = (
    Command(
        name="list", body=list_worlds, options=(JSON,), example="agentcli env list"
    ),
    Command(
        name="check",
        body=check,
        arguments=(WORLD_ARGUMENT,),
        options=(*LAYERS, *WORLD_HERE, PLAYED, MAX_STEPS, SEED, JSON, QUIET),
        example="agentcli env check --preset quickstart --tasks 12",
    ),
    Command(
        name="panel",
        body=panel,
        arguments=(WORLD_ARGUMENT,),
        options=(*LAYERS, *WORLD_HERE, TASKS, OUT_FILE, OVERWRITE, DRY_RUN),
        example="agentcli env panel --preset quickstart --split L2 -o l2.json",
    ),
)
