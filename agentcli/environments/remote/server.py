"""The server of a world: `agentcli env serve NAME`.

Sessions are websockets at /ws, limited in number; a session that is idle for too long
is closed. Requests that need no session use HTTP. A world that is Serving adds routes.
"""

import asyncio
import contextlib
import hmac
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketClose, WebSocketDisconnect

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import (
    Context,
    Guiding,
    Observation,
    Serving,
    Toolbox,
    Tutor,
    World,
)
from agentcli.environments.remote import wire
from agentcli.environments.remote.session import TaskIndex, WorldSession
from agentcli.errors import AgentCliError
from agentcli.version import __version__

MOST_REQUEST_BYTES = 2**20
"""The longest message of a client."""
POLICY_VIOLATION = 1008
"""The close code of a session that broke a rule (RFC 6455)."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a server allows."""

    sessions: int
    """Most sessions at once."""
    idle_seconds: float
    """Seconds without a message after which a session is closed."""
    token: str | None
    """The secret that clients must know; None: anyone who can reach the address."""
    host: str
    """The name of the address, by which clients without a secret may call it."""


class WorldServer:
    """A world behind a pool, for any number of clients."""

    def __init__(
        self, world: World, pool: EnginePool, tasks: TaskIndex, limits: Limits
    ) -> None:
        self._world = world
        self._pool = pool
        self._tasks = tasks
        self._limits = limits
        self._sessions = 0

    def app(self) -> Starlette:
        """The application that uvicorn runs."""
        routes = [
            Route("/health", self._health),
            Route("/metadata", self._metadata),
            Route("/schema", self._schema),
            Route("/world", self._describe),
            Route("/tasks", self._list_tasks),
            WebSocketRoute("/ws", self._converse),
        ]
        if isinstance(self._world, Tutor):
            routes.append(Route("/tutor/compact", self._compact, methods=["POST"]))
            routes.append(Route("/tutor/next", self._next, methods=["POST"]))
        if isinstance(self._world, Guiding):
            routes.append(Route("/guide/sight", self._sight, methods=["POST"]))
        further = self._world.routes() if isinstance(self._world, Serving) else []
        return Starlette(
            routes=[*routes, *further],
            middleware=[Middleware(Gate, limits=self._limits)],
            exception_handlers={
                AgentCliError: _refuse,
                msgspec.MsgspecError: _refuse,
            },
            max_body_size=MOST_REQUEST_BYTES,
        )

    async def _converse(self, websocket: WebSocket) -> None:
        """One session, from its first message to its last."""
        await websocket.accept()
        if self._sessions >= self._limits.sessions:
            text = f"all {self._limits.sessions} sessions are taken"
            fault = wire.Fault(text, wire.CAPACITY)
            await websocket.send_text(wire.packed("error", fault))
            await websocket.close(POLICY_VIOLATION, text)
            return
        self._sessions += 1
        session = WorldSession(self._pool, self._tasks)
        try:
            with contextlib.suppress(WebSocketDisconnect):
                await self._answer_all(websocket, session)
        finally:
            self._sessions -= 1
            await session.close()

    async def _answer_all(self, websocket: WebSocket, session: WorldSession) -> None:
        idle = self._limits.idle_seconds
        while True:
            try:
                async with asyncio.timeout(idle):
                    text = await websocket.receive_text()
            except TimeoutError:
                text = f"no message for {idle:g} seconds"
                await websocket.close(POLICY_VIOLATION, text)
                return
            except KeyError:
                await websocket.close(POLICY_VIOLATION, "messages are texts")
                return
            answer = await session.answer(text)
            if answer is None:
                await websocket.close()
                return
            await websocket.send_text(answer)

    async def _health(self, request: Request) -> Response:
        return _json({"status": "healthy"})

    async def _metadata(self, request: Request) -> Response:
        card = self._world.card
        about = {"name": card.name, "description": card.role, "version": __version__}
        return _json(about)

    async def _schema(self, request: Request) -> Response:
        kinds: dict[str, type[msgspec.Struct]] = {
            "action": wire.StepData,
            "observation": Observation,
            "state": wire.SessionState,
        }
        return _json({name: _schema_of(kind) for name, kind in kinds.items()})

    async def _describe(self, request: Request) -> Response:
        world = self._world
        tutor = world if isinstance(world, Tutor) else None
        return _json(
            wire.ServedWorld(
                protocol=wire.PROTOCOL,
                version=__version__,
                card=world.card,
                solvable=self._pool.solvable,
                forms=world.forms if isinstance(world, Guiding) else None,
                tools=dict(world.tools) if isinstance(world, Toolbox) else None,
                vocabulary=tutor.vocabulary() if tutor else None,
                habits=wire.served_habits(tutor.habits) if tutor else [],
            )
        )

    async def _list_tasks(self, request: Request) -> Response:
        split = request.query_params.get("split", self._world.card.split)
        return _json(self._tasks.of(split))

    async def _compact(self, request: Request) -> Response:
        assert isinstance(self._world, Tutor)
        context = msgspec.json.decode(await request.body(), type=Context)
        return _json(self._world.compact(context))

    async def _next(self, request: Request) -> Response:
        assert isinstance(self._world, Tutor)
        data = msgspec.json.decode(await request.body(), type=wire.NextData)
        habits = msgspec.convert(data.habits, self._world.habits)
        return _json(self._world.next(data.context, data.seed, habits))

    async def _sight(self, request: Request) -> Response:
        assert isinstance(self._world, Guiding)
        context = msgspec.json.decode(await request.body(), type=Context)
        return _json(self._world.sight(context))


class Gate:
    """Admits clients that know the token, but no web page.

    A page of any site can send requests to the loopback addresses of its reader's
    machine. Browsers then set the header Origin, which other clients do not. They set
    no Origin where the site's own name leads here (DNS rebinding), but that name is
    then the Host.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        token = limits.token
        self._secret = None if token is None else f"Bearer {token}".encode()
        self._hosts = {*wire.LOOPBACK, limits.host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "lifespan" or self._admits(headers):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose(POLICY_VIOLATION)(scope, receive, send)
        elif self._secret is None:
            text = f"without {wire.TOKEN_VARIABLE} only this machine may ask, by name"
            await PlainTextResponse(text, status_code=403)(scope, receive, send)
        else:
            text = f"send Authorization: Bearer {wire.TOKEN_VARIABLE}"
            await PlainTextResponse(text, status_code=401)(scope, receive, send)

    def _admits(self, headers: dict[bytes, bytes]) -> bool:
        if b"origin" in headers:
            return False
        if self._secret is None:
            return _host_name(headers.get(b"host", b"")) in self._hosts
        return hmac.compare_digest(headers.get(b"authorization", b""), self._secret)


def _host_name(host: bytes) -> str | None:
    """The name in a Host header, without the port; None if it is malformed."""
    try:
        return urlsplit(f"//{host.decode('latin-1')}").hostname
    except ValueError:
        return None


def _schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of an object, its properties at the top as in OpenEnv."""
    definitions = msgspec.json.schema(kind)["$defs"]
    return {**definitions.pop(kind.__name__), "$defs": definitions}


async def _refuse(request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), status_code=400)


def _json(thing: Any) -> Response:
    return Response(msgspec.json.encode(thing), media_type="application/json")
