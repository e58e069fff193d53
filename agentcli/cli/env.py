"""The commands `agentcli env ...`."""

import dataclasses
import sys
from collections import Counter
from pathlib import Path

from agentcli.cli import completion, options
from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, world_option
from agentcli.cli.serve import server_option
from agentcli.errors import AgentCliError

WORLD_ARGUMENT = Option(
    "world", "World to look at.", values=completion.worlds, path="environment.name"
)
NEW_NAME = Option("name", "What the world is called, as a Python module is.")
LISTED_WORLD = Option("world", "Only this world.", values=completion.worlds)
PLAYED = world_option(
    "--tasks", "Tasks to play, spread over the panel (6).", int, least=1
)
OUT_FILE = dataclasses.replace(
    options.OUT, help="Where to write it; to stdout without it.", metavar="FILE"
)
SESSIONS = 256

SERVED_WORLD = Option(
    "world", "World to serve.", values=completion.worlds, path="environment.name"
)
PORT = server_option(
    "--port",
    "Port to listen on; 0: any free one. Default: 8100.",
    int,
    "N",
    least=0,
    most=65535,
)
MOST_SESSIONS = server_option(
    "--sessions", f"Most sessions at once. Default: {SESSIONS}.", int, "N", least=1
)
PROCESSES = server_option(
    "--processes", "Engine processes.", int, "N", path="environment.processes"
)
WORLD_HERE = (options.DATA, options.SPLIT, options.PANEL, options.WHERE)


def list_worlds(call: Call) -> None:
    """List the splits of every world: how many tasks, and what they test.

    There are also gym:ID, http://HOST:PORT and FILE.py:Class, which are listed when
    they are typed.
    """
    import msgspec

    from agentcli.environments.registry import world_names
    from agentcli.reports.output import print_rows
    from agentcli.stages import environment

    world = call.values["world"]
    names = world_names() if world is None else [world]
    listed = environment.list_splits(names, call.progress.note)
    splits = msgspec.to_builtins(listed)
    print_rows("splits of the worlds", splits, json=call.values["json"])


def check(call: Call) -> None:
    """Play the expert on some tasks to test a world.

    Each task must end with the full reward, replay exactly, and fork exactly.
    """
    settings = call.settings
    import msgspec

    from agentcli.reports.output import print_rows
    from agentcli.stages import environment

    tasks = call.values["tasks"] or 6
    checked = environment.check(settings, tasks, call.progress)
    if call.values["json"]:
        print_rows("check", msgspec.to_builtins(checked), json=True)
    else:
        styles = ["red" if row.problem else "green" for row in checked]
        print_rows("check", environment.results(checked), json=False, styles=styles)
        costs = environment.costs(checked)
        print_rows("what it cost (medians over tasks)", [costs], json=False)
    failed = [row for row in checked if row.problem is not None]
    if failed:
        raise AgentCliError(
            f"{len(failed)} of {len(checked)} tasks failed, first {failed[0].task}: "
            f"{failed[0].problem}"
        )


def panel(call: Call) -> None:
    """Print the panel of a split, narrowed by --where and --tasks.

    The output is JSON, or on a terminal the number of tasks by kind. With -o, writes
    the panel as a file for --panel.
    """
    import msgspec

    from agentcli.environments.registry import make_world
    from agentcli.records.files import write_json
    from agentcli.reports.output import print_rows
    from agentcli.stages.panels import panel_for

    environment = call.settings.environment
    tasks = panel_for(make_world(environment), environment)
    out = call.values["out"]
    call.refuse_existing(out)
    if call.dry:
        inputs = {"panel": environment.panel}
        outputs = [] if out is None else [out]
        call.print_plan(inputs, outputs, {"tasks": len(tasks.tasks)})
    elif out is None and sys.stdout.isatty() and not call.values["json"]:
        kinds = Counter(task.kind for task in tasks.tasks)
        rows = [{"kind": kind, "tasks": count} for kind, count in kinds.items()]
        print_rows(f"{tasks.name}: {len(tasks.tasks)} tasks", rows, json=False)
    elif out is None:
        print(msgspec.json.encode(tasks).decode())
    else:
        write_json(out, tasks)
        print(out)


def new(call: Call) -> None:
    """Write a small example world and its test, to change into your own.

    Writes NAME.py and test_NAME.py into this folder; both work as they are.
    """
    from agentcli.stages.environment import new_world, write_world

    texts = new_world(call.values["name"], Path.cwd())
    write_world(texts)
    for path in texts:
        print(path.name)


def serve(call: Call) -> None:
    """Serve a world to any OpenEnv client on this machine, until Ctrl-C.

    A reset opens the task of its seed, counted along the split, or what
    environment.where, tasks and panel select. From another machine, use a tunnel:
    ssh -L 8100:127.0.0.1:8100 HOST
    """
    from agentcli.reports.output import print_data
    from agentcli.stages.env_server import EnvServer

    # Not `or 8100`: port 0 asks for any free one.
    port = 8100 if call.values["port"] is None else call.values["port"]
    sessions = call.values["sessions"] or SESSIONS
    environment = call.settings.environment
    server = EnvServer(settings=environment, port=port, sessions=sessions)
    if call.dry:
        facts = {
            "port": port,
            "world": environment.name,
            "tasks": len(server.tasks),
        }
        print_data(facts, json=call.values["json"])
        return
    call.progress.wait(f"starting {environment.name}")
    server.serve(lambda url: call.announce(url, {"url": url}))


COMMANDS = (
    Command(
        name="list",
        body=list_worlds,
        options=(LISTED_WORLD, options.JSON),
        example="agentcli env list",
    ),
    Command(
        name="check",
        body=check,
        options=(
            WORLD_ARGUMENT,
            *options.LAYERS,
            *WORLD_HERE,
            PLAYED,
            options.MAX_STEPS,
            options.SEED,
            options.JSON,
            options.QUIET,
        ),
        example="agentcli env check --preset quickstart --tasks 12",
    ),
    Command(
        name="panel",
        body=panel,
        options=(
            WORLD_ARGUMENT,
            *options.LAYERS,
            *WORLD_HERE,
            options.TASKS,
            OUT_FILE,
            options.OVERWRITE,
            options.DRY_RUN,
            options.JSON,
        ),
        example="agentcli env panel --preset quickstart --split L2 -o l2.json",
    ),
    Command(
        name="serve",
        body=serve,
        options=(
            SERVED_WORLD,
            *options.LAYERS,
            options.DATA,
            options.SPLIT,
            options.MAX_STEPS,
            PORT,
            MOST_SESSIONS,
            PROCESSES,
            options.DRY_RUN,
            options.JSON,
            options.QUIET,
        ),
        example="agentcli env serve sokoban --port 8100",
    ),
    Command(
        name="new", body=new, options=(NEW_NAME,), example="agentcli env new my_world"
    ),
)
