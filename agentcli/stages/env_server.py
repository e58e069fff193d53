"""env serve: a server of a world, for `--env http://HOST:PORT`."""

import contextlib
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import World
from agentcli.environments.registry import make_world, tasks_of
from agentcli.environments.remote.session import TaskIndex
from agentcli.environments.remote.wire import LOOPBACK, TOKEN_VARIABLE
from agentcli.errors import MissingError, UsageError
from agentcli.records.settings import EnvironmentSettings
from agentcli.requirements import remedy_for

FAREWELL_SECONDS = 2
"""Time for clients to notice that the server is stopping."""


@dataclass(frozen=True, kw_only=True)
class EnvServerPlan:
    """A server that is ready to start."""

    settings: EnvironmentSettings
    world: World
    tasks: TaskIndex
    host: str
    port: int
    sessions: int
    idle_seconds: float
    token: str | None

    def url(self, port: int) -> str:
        """The URL for `--env`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{port}"


def plan(
    settings: EnvironmentSettings,
    *,
    host: str,
    port: int,
    sessions: int,
    idle_seconds: float,
) -> EnvServerPlan:
    """Plans a server for the world in the settings.

    Raises UsageError for an address that others can reach if no token is set, and what
    creating the world and listing its tasks raises.
    """
    token = os.environ.get(TOKEN_VARIABLE) or None
    if host not in LOOPBACK and token is None:
        raise UsageError(
            f"--host {host}: others reach this address; set {TOKEN_VARIABLE} to a "
            "secret, here and where the world is played"
        )
    world = make_world(settings)
    splits = world.card.splits
    tasks = {split: tasks_of(world, settings.name, split) for split in splits}
    return EnvServerPlan(
        settings=settings,
        world=world,
        tasks=TaskIndex(tasks, world.card.split),
        host=host,
        port=port,
        sessions=sessions,
        idle_seconds=idle_seconds,
        token=token,
    )


def perform(server: EnvServerPlan, ready: Callable[[str], None]) -> None:
    """Serves until it is interrupted; `ready` gets the address.

    Raises MissingError if a package that it needs is missing, UsageError if the address
    cannot be used, and what the world's engines raise when they start.
    """
    try:
        import uvloop
        import websockets  # noqa: F401
    except ImportError as error:
        raise MissingError(f"env serve: {error}; {remedy_for('uvloop')}") from error
    # Ctrl-C is the normal way to stop it.
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_serve(server, ready))


async def _serve(server: EnvServerPlan, ready: Callable[[str], None]) -> None:
    import uvicorn

    from agentcli.environments.remote.server import (
        MOST_REQUEST_BYTES,
        Limits,
        WorldServer,
    )

    limits = Limits(
        sessions=server.sessions,
        idle_seconds=server.idle_seconds,
        token=server.token,
        host=server.host,
    )
    with _listening(server) as listener:
        async with EnginePool(server.settings) as pool:
            app = WorldServer(server.world, pool, server.tasks, limits).app()
            config = uvicorn.Config(
                app,
                log_level="warning",
                timeout_graceful_shutdown=FAREWELL_SECONDS,
                ws_max_size=MOST_REQUEST_BYTES,
                ws_per_message_deflate=False,
            )
            logging.getLogger("uvicorn.error").addFilter(_without_traceback)
            ready(server.url(listener.getsockname()[1]))
            await uvicorn.Server(config).serve([listener])


def _without_traceback(record: logging.LogRecord) -> bool:
    """Logs in one line that a client sent a text that is not UTF-8."""
    if record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError):
        record.exc_info = None
    return True


def _listening(server: EnvServerPlan) -> socket.socket:
    """A socket bound to the address. Raises UsageError if that is impossible."""
    is_six = ":" in server.host
    family = socket.AF_INET6 if is_six else socket.AF_INET
    try:
        return socket.create_server((server.host, server.port), family=family)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"{server.host}:{server.port}: cannot be listened on ({error}); choose "
            "another with --port N"
        ) from error
