"""The command `agentcli env serve`."""

from agentcli.cli import completion
from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.option import Option
from agentcli.cli.options import DATA, DRY_RUN, JSON, LAYERS, MAX_STEPS, QUIET, SPLIT
from agentcli.cli.serve import server_option
from agentcli.errors import UsageError

PORTS = range(2**16)
SESSIONS = 256

SERVED_WORLD = Option(
    "world", "environment.name", "World to serve.", values=completion.worlds
)
PORT = server_option(
    "--port", None, "Port to listen on; 0: any free one. Default: 8100.", int, "N"
)
MOST_SESSIONS = server_option(
    "--sessions", None, f"Most sessions at once. Default: {SESSIONS}.", int, "N"
)
PROCESSES = server_option(
    "--processes", "environment.processes", "Engine processes.", int, "N"
)


def serve(call: Call) -> None:
    """Serve a world to any OpenEnv client on this machine, until Ctrl-C.

    A reset opens the task of its seed, counted along the split. From another
    machine, use a tunnel: ssh -L 8100:127.0.0.1:8100 HOST
    """
    from agentcli.reports.output import print_data, print_json
    from agentcli.stages.env_server import EnvServer

    port = 8100 if call.values["port"] is None else call.values["port"]
    if port not in PORTS:
        raise UsageError(f"--port {port}: a port is a number from 0 to {PORTS[-1]}")
    sessions = SESSIONS if call.values["sessions"] is None else call.values["sessions"]
    if sessions < 1:
        raise UsageError(f"--sessions {sessions}: allow at least one")
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

    def ready(url: str) -> None:
        call.progress.stop()
        if call.values["json"]:
            print_json({"url": url})
        else:
            print(url, flush=True)

    server.serve(ready)


COMMAND = Command(
    name="serve",
    body=serve,
    options=(
        SERVED_WORLD,
        *LAYERS,
        DATA,
        SPLIT,
        MAX_STEPS,
        PORT,
        MOST_SESSIONS,
        PROCESSES,
        DRY_RUN,
        JSON,
        QUIET,
    ),
    example="agentcli env serve sokoban --port 8100",
)
