"""env serve: a world as a plain OpenEnv server, which any OpenEnv client can play.

A session is a websocket at /ws. It plays one task at a time with reset, step and state,
to the end of the episode or to environment.max_steps. Its engine lives in a pool, so
one that dies or hangs does not end the server. The number of sessions, episodes and
messages are limited, and with them what clients can make the server hold.

Only this machine is answered, and by its own name: the page of any site could otherwise
play, by Origin or by a name of the site that leads here (DNS rebinding).
"""

import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import uvicorn
import uvloop
import websockets  # noqa: F401 - without it uvicorn has no websockets
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from agentcli.environments.engines.pool import EnginePool, State
from agentcli.environments.protocol import WORLD_FAILED, Serving
from agentcli.environments.registry import make_world, tasks_of
from agentcli.errors import AgentCliError, UsageError
from agentcli.records.faults import UNREADABLE, fault_in
from agentcli.records.settings import EnvironmentSettings
from agentcli.stages.panels import panel_for
from agentcli.version import __version__

HERE = "127.0.0.1"
NAMES = (HERE, "localhost")
"""Hosts by which clients may call the server."""
FAREWELL_SECONDS = 2
"""Time for clients to notice that the server is stopping."""
MOST_REQUEST_BYTES = 2**20
"""The longest message of a client."""
POLICY_VIOLATION = 1008
"""The close code of a session that broke a rule (RFC 6455)."""
ACTION = {"properties": {"action": {"type": "string"}}, "required": ["action"]}
SHOWN = ("text", "actions", "accepted", "pictures")
OBSERVATION: dict[str, Any] = {
    "properties": {name: {} for name in (*SHOWN, "end", "instruction")}
}
SCHEMA = {"action": ACTION, "observation": OBSERVATION, "state": {}}


class ClientData(msgspec.Struct):
    """An action, or which task a reset opens: number `seed` of the split, cyclically.

    Without a seed it opens the task after the session's last one.
    """

    action: Any = None
    """A text. A client that reads it as JSON sends `10` as a number (verifiers does)."""
    seed: int | None = None


class ClientMessage(msgspec.Struct):
    """What a client of OpenEnv sends."""

    type: Literal["reset", "step", "state", "close"]
    data: ClientData = msgspec.field(default_factory=ClientData)


@dataclass(kw_only=True)
class EnvServer:
    """A world that is ready to be served."""

    settings: EnvironmentSettings
    port: int
    sessions: int
    """Most sessions at once."""

    def __post_init__(self) -> None:
        """Raises what creating the world and listing its tasks raises."""
        self.world = make_world(self.settings)
        split = self.settings.split or self.world.card.split
        self.tasks = tasks_of(self.world, self.settings.name, split)
        # A corpus alone has no tasks, and is served all the same.
        if self.tasks or self.settings.panel:
            self.tasks = panel_for(self.world, self.settings).tasks
        self.open_sessions = 0

    def serve(self, ready: Callable[[str], None]) -> None:
        """Serves until it is interrupted; `ready` gets the address.

        Raises UsageError if the address cannot be used, and what the world's engines
        raise when they start.
        """
        try:
            listener = socket.create_server((HERE, self.port))
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"--port {self.port}: cannot be listened on ({error}); choose another"
            ) from error
        # Ctrl-C is the normal way to stop it.
        with listener, contextlib.suppress(KeyboardInterrupt):
            uvloop.run(self._serve(listener, ready))

    async def _serve(
        self, listener: socket.socket, ready: Callable[[str], None]
    ) -> None:
        async with EnginePool(self.settings) as pool:
            config = uvicorn.Config(
                self._app(pool),
                log_level="warning",
                timeout_graceful_shutdown=FAREWELL_SECONDS,
                ws_max_size=MOST_REQUEST_BYTES,
                ws_per_message_deflate=False,
            )
            logging.getLogger("uvicorn.error").addFilter(_without_traceback)
            ready(f"http://{HERE}:{listener.getsockname()[1]}")
            await uvicorn.Server(config).serve([listener])

    def _app(self, pool: EnginePool) -> Starlette:
        async def converse(websocket: WebSocket) -> None:
            # Browsers name the page's origin in every handshake; other programs do not.
            if "origin" in websocket.headers:
                await websocket.close()
                return
            await websocket.accept()
            session = ServedEpisode(self, pool)
            self.open_sessions += 1
            try:
                # A client may be gone before it has its answer.
                with contextlib.suppress(WebSocketDisconnect):
                    await self._answer_all(websocket, session)
            finally:
                self.open_sessions -= 1
                await session.release()

        card = self.world.card
        about = {"name": card.name, "description": card.role, "version": __version__}
        further = self.world.routes() if isinstance(self.world, Serving) else []
        return Starlette(
            routes=[
                _page("/health", {"status": "healthy"}),
                _page("/metadata", about),
                _page("/schema", SCHEMA),
                WebSocketRoute("/ws", converse),
                *further,
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=NAMES)],
            max_body_size=MOST_REQUEST_BYTES,
        )

    async def _answer_all(self, websocket: WebSocket, session: "ServedEpisode") -> None:
        """Answers from the first message to the last."""
        # Refused after the handshake: a client that is refused before it gets no
        # reason.
        if self.open_sessions > self.sessions:
            text = f"all {self.sessions} sessions are taken"
            await websocket.send_text(_fault("CAPACITY_REACHED", text))
            await websocket.close(POLICY_VIOLATION, text)
            return
        while (message := await websocket.receive())["type"] != "websocket.disconnect":
            answer = await session.answer(message.get("text") or "")
            if answer is None:
                await websocket.close()
                return
            await websocket.send_text(answer)


class ServedEpisode:
    """One client and its episode."""

    def __init__(self, server: EnvServer, pool: EnginePool) -> None:
        self._server = server
        self._pool = pool
        self._state: State | None = None
        self._is_done = False
        self._next = 0

    async def answer(self, text: str) -> str | None:
        """The answer to a message; None to the last one."""
        try:
            message = msgspec.json.decode(text, type=ClientMessage)
            if message.type == "reset":
                return await self._reset(message.data.seed)
            if message.type == "step":
                return await self._step(message.data.action)
        except UNREADABLE as error:
            fault = fault_in(error, text.encode(errors="replace"))
            return _fault("VALIDATION_ERROR", fault)
        except AgentCliError as error:
            return _fault("EXECUTION_ERROR", str(error).rpartition(WORLD_FAILED)[2])
        if message.type == "close":
            return None
        if self._state is None:
            return _packed("state", {"step_count": 0})
        steps, task = len(self._state.actions), self._state.task.id
        return _packed("state", {"step_count": steps, "episode_id": task})

    async def release(self) -> None:
        """Gives the engine of its task back."""
        if self._state is not None:
            await self._pool.release(self._state.task.id)
            self._state = None

    async def _reset(self, seed: int | None) -> str:
        tasks = self._server.tasks
        if not tasks:
            raise UsageError("the world has no tasks here")
        await self.release()
        number = self._next if seed is None else seed
        self._next = number + 1
        self._state = await self._pool.start(tasks[number % len(tasks)])
        return self._seen(self._state, instruction=self._state.instruction)

    async def _step(self, action: Any) -> str:
        if action is None:
            raise UsageError("the data of a step holds an action, which is a text")
        if not isinstance(action, str):
            action = msgspec.json.encode(action).decode()
        if self._state is None or self._is_done:
            raise UsageError("no episode is open in this session; send a reset first")
        self._state = await self._pool.step(self._state, action)
        return self._seen(self._state)

    def _seen(self, state: State, **further: str) -> str:
        """The answer that shows a new state, as far as a policy may see it."""
        seen = state.observation
        end = seen.end
        if end is None and len(state.actions) >= self._server.settings.max_steps:
            end = "truncated"
        self._is_done = end is not None
        observation = {name: getattr(seen, name) for name in SHOWN}
        observation |= {"end": end, **further}
        data = {
            "observation": observation,
            "reward": seen.reward,
            "done": self._is_done,
        }
        return _packed("observation", data)


def _page(path: str, facts: Any) -> Route:
    return Route(path, lambda request: JSONResponse(facts))


def _packed(kind: str, data: Any) -> str:
    return msgspec.json.encode({"type": kind, "data": data}).decode()


def _fault(code: str, message: str) -> str:
    return _packed("error", {"message": message, "code": code})


def _without_traceback(record: logging.LogRecord) -> bool:
    """Logs in one line that a client sent a text that is not UTF-8."""
    if record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError):
        record.exc_info = None
    return True
