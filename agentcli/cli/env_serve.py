"""The command `agentcli env serve`."""

from typing import TypeVar

from agentcli.cli import completion
from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.option import Option
from agentcli.cli.options import DATA, DRY_RUN, JSON, LAYERS, QUIET
from agentcli.cli.serve import HOST, server_option
from agentcli.errors import UsageError

Number = TypeVar("Number", int, float)

PORTS = range(2**16)
SESSIONS = 256
IDLE_SECONDS = 1800.0
LONGEST_IDLE_SECONDS = 31_536_000.0
"""One year."""

SERVED_WORLD = Option(
    "world", "environment.name", "World to serve.", values=completion.worlds
)
PORT = server_option(
    "--port", None, "Port to listen on; 0: any free one. Default: 8100.", int, "N"
)
MOST_SESSIONS = server_option(
    "--sessions", None, f"Most sessions at once. Default: {SESSIONS}.", int, "N"
)
IDLE = server_option(
    "--idle",
    None,
    f"A session ends after S silent seconds. Default: {IDLE_SECONDS:g}.",
    float,
    "S",
)
PROCESSES = server_option(
    "--processes", "environment.processes", "Engine processes.", int, "N"
)


def serve(call: Call) -> None:
    """Serve a world to --env http://HOST:PORT, until Ctrl-C.

    Any client of OpenEnv can play it too. AGENTCLI_WORLD_TOKEN contains a
    secret that clients must send; without a secret the server listens only
    on loopback addresses.
    """
    from agentcli.reports.output import print_data, print_json
    from agentcli.stages.env_server import perform, plan

    port = _typed(call, "port", 8100)
    if port not in PORTS:
        raise UsageError(f"--port {port}: a port is a number from 0 to {PORTS[-1]}")
    sessions = _typed(call, "sessions", SESSIONS)
    if sessions < 1:
        raise UsageError(f"--sessions {sessions}: allow at least one")
    idle = _typed(call, "idle", IDLE_SECONDS)
    if not 0 < idle <= LONGEST_IDLE_SECONDS:
        raise UsageError(
            f"--idle {idle:g}: give seconds, above 0 and at most "
            f"{LONGEST_IDLE_SECONDS:g}"
        )
    environment = call.settings.environment
    server = plan(
        environment,
        host=call.values["host"] or "127.0.0.1",
        port=port,
        sessions=sessions,
        idle_seconds=idle,
    )
    if call.dry:
        counts = {name: len(tasks) for name, tasks in server.tasks.by_split.items()}
        facts = {"url": server.url(port), "world": environment.name, "tasks": counts}
        print_data(facts, json=call.values["json"])
        return
    call.progress.wait(f"starting {environment.name}")

    def ready(url: str) -> None:
        call.progress.stop()
        if call.values["json"]:
            print_json({"url": url, "use": f"--env {url}"})
        else:
            print(f"--env {url}", flush=True)

    perform(server, ready)


def _typed(call: Call, name: str, default: Number) -> Number:
    value: Number | None = call.values[name]
    return default if value is None else value


COMMAND = Command(
    name="serve",
    body=serve,
    options=(
        SERVED_WORLD,
        *LAYERS,
        DATA,
        HOST,
        PORT,
        MOST_SESSIONS,
        IDLE,
        PROCESSES,
        DRY_RUN,
        JSON,
        QUIET,
    ),
    example="agentcli env serve sokoban --port 8100",
)
