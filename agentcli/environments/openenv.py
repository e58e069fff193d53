"""A world that an OpenEnv server plays: `--env http://HOST:PORT`.

Its facts are asked over HTTP, and a websocket is a session. Such a server has only
reset, step and state. Tasks are seeds (environments/seeded.py). A server that takes no
seed must begin all episodes in the same way: `env check` reports whether it does.

Nothing that a server sends is trusted: bodies and waits are limited (records/http.py),
answers are typed, and error texts become one line. Losing a session ends the engine
process (LostEngineError), so that the pool replays its states, once.
"""

import math
import os
from contextlib import suppress
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    WebSocketException,
)
from websockets.sync.client import ClientConnection, connect

from agentcli.environments.protocol import (
    Card,
    LostEngineError,
    NoEngineLeftError,
    Observation,
    Start,
    options_of,
)
from agentcli.environments.registry import TOKEN_VARIABLE
from agentcli.environments.seeded import (
    Play,
    SeededOptions,
    seed_of,
    seeded_card,
    seeded_tasks,
)
from agentcli.errors import EngineError, MissingError, UsageError
from agentcli.records.faults import UNREADABLE, fault_in, shown
from agentcli.records.http import (
    Asking,
    BlockingHttpClient,
    LongAnswerError,
    NoAnswerError,
    checked_url,
)
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.registry import nearest

LOOPBACK = ("127.0.0.1", "localhost", "::1")
CONNECT_SECONDS = 10.0
HTTP_SECONDS = 10.0
"""The shortest deadline of an answer over HTTP."""
MOST_BYTES = 16 * 2**20
"""The longest answer."""
TOO_BIG = 1009
"""The close code of a message that was too long (RFC 6455)."""
CAPACITY = "CAPACITY_REACHED"
"""The error code of a server that has no session left."""
SESSION = "SESSION_ERROR"
"""The error code of a session that has ended."""
T = TypeVar("T")
BOOKKEEPING = ("metadata", "done", "reward")
"""Fields of OpenEnv's own actions and observations."""
NUMBERS = ("integer", "number")
"""Types of JSON schema that a number is written for."""


class OpenEnvOptions(SeededOptions, kw_only=True, frozen=True):
    """environment.options of an OpenEnv server."""

    action: str | None = None
    """The field of its action that the agent writes. None: the only one that has no
    default.
    """
    text: str | None = None
    """The field of its observation that the agent reads. None: all of them."""
    reset: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further arguments of its reset."""


class OpenEnvSchema(msgspec.Struct):
    """The answer to GET /schema: JSON schemas."""

    action: dict[str, Any]
    observation: dict[str, Any]


class OpenEnvMetadata(msgspec.Struct):
    """The answer to GET /metadata."""

    name: str


class OpenEnvStep(msgspec.Struct):
    """The answer to reset and step."""

    observation: dict[str, Any]
    reward: float | None = None
    done: bool = False


class Fault(msgspec.Struct):
    """An error of a request."""

    message: str
    code: str = ""


class ServerMessage(msgspec.Struct):
    """Any message of the server, its data not read yet."""

    type: str
    data: msgspec.Raw = msgspec.Raw(b"null")


class OpenEnvWorld:
    """The world at an address. Raises UsageError, MissingError and EngineError."""

    def __init__(self, settings: EnvironmentSettings) -> None:
        self._url = checked_url(
            settings.name, "environment.name", "http://HOST:PORT", TOKEN_VARIABLE
        )
        self.options = options_of(settings, OpenEnvOptions)
        names = self.options.actions or []
        if len(set(names)) < len(names):
            raise UsageError(
                f"environment.options.actions: of {len(names)} names only "
                f"{len(set(names))} differ; give each action a name of its own"
            )
        asking = Asking(
            seconds=max(HTTP_SECONDS, settings.deadline_seconds),
            setting="environment.deadline_seconds",
            headers=_headers(),
            # A proxy of the environment is not for this machine's own addresses.
            trust_env=not _is_loopback(self._url),
        )
        client = BlockingHttpClient(asking)
        schema = self._fact(client, "/schema", OpenEnvSchema)
        if schema is None:
            raise MissingError(
                f"{self._url}: what answers there is no world: it has no /schema; "
                "start one with: agentcli env serve NAME"
            )
        about = self._fact(client, "/metadata", OpenEnvMetadata)
        self._name = about.name if about else "openenv"
        self._field = _chosen(schema.action, self.options.action, self._url)
        fields = schema.observation.get("properties", {})
        text = self.options.text
        if text is not None and text not in fields:
            hint = nearest(text, fields)
            raise UsageError(
                f"environment.options.text: the observations of {self._url} have no "
                f"{text}; {hint}"
            )
        self._kind = schema.action["properties"][self._field].get("type")

    @property
    def card(self) -> Card:
        return seeded_card(self._name, self.options)

    def tasks(self, split: str) -> list[Task]:
        return seeded_tasks(self._name, split, self.options.seeds)

    def engine(self) -> "OpenEnvEngine":
        return OpenEnvEngine(self._url, self.options, self._field, self._kind)

    def _fact(self, client: BlockingHttpClient, path: str, kind: type[T]) -> T | None:
        """The typed answer of a path over HTTP; None if there is nothing at that path.

        Raises MissingError where nobody answers, or only to others, and EngineError for
        an answer that is not of the type.
        """
        place = f"{self._url}{path}"
        try:
            answer = client.ask("GET", place, MOST_BYTES)
        except LongAnswerError as error:
            raise EngineError(f"{place}: {error}") from error
        except NoAnswerError as error:
            raise _missing(self._url, shown(str(error))) from error
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        _refuse_status(answer.status, answer.body, place)
        return _typed(answer.body, kind, place)


class OpenEnvEngine:
    """One session of a server. States are restored by replaying the actions.

    Raises MissingError where nobody answers, and NoEngineLeftError where all sessions
    are taken.
    """

    def __init__(
        self, url: str, options: OpenEnvOptions, field: str, kind: Any
    ) -> None:
        self._url = url
        self._options = options
        self._field = field
        self._kind = kind
        names = options.actions or ()
        self._values = {name: number for number, name in enumerate(names)}
        self._socket = _open(url)
        # A server that has no session left says so and hangs up, perhaps before it
        # hears anything; another one is silent until it is asked.
        with suppress(ConnectionClosed):
            self._send("state", {})
        answer = self._receive()
        if answer.type == "error" and _typed(answer.data, Fault, url).code == CAPACITY:
            self.close()
            raise NoEngineLeftError(
                f"{url}: all its sessions are taken; end who plays there, or let "
                "its server have more"
            )

    def start(self, task: Task) -> Start:
        """Resets the session with the task's seed."""
        seed = seed_of(task)
        data = {**self._options.reset, "seed": seed}
        answer = self._ask("reset", data)
        self._play = Play(self._options, seed)
        first = self._play.begin(self._text(answer), tuple(self._values))
        return Start(instruction=self._options.instruction, observation=first)

    def step(self, action: str) -> Observation:
        """Writes the action into its field; one that is no number changes nothing."""
        written = action.strip()
        value = self._value(written)
        if value is None:
            return self._play.refuse()
        data = {self._field: value}
        answer = self._ask("step", data)
        return self._play.advance(
            written,
            self._text(answer),
            tuple(self._values),
            answer.reward or 0.0,
            "terminated" if answer.done else None,
        )

    def close(self) -> None:
        self._socket.close()

    def _ask(self, kind: str, data: Any) -> OpenEnvStep:
        """Sends a message; gives the step that answers it.

        Raises LostEngineError for a lost session, and EngineError for what the server
        reports.
        """
        try:
            self._send(kind, data)
        except ConnectionClosed as error:
            raise self._lost(error) from error
        answer = self._receive()
        if answer.type == "error":
            fault = _typed(answer.data, Fault, self._url)
            text = f"{self._url}: {shown(fault.message)}"
            raise (LostEngineError if fault.code == SESSION else EngineError)(text)
        if answer.type != "observation":
            raise EngineError(
                f"{self._url}: answered {shown(answer.type)!r} to {kind}, and not "
                "'observation'"
            )
        return _typed(answer.data, OpenEnvStep, self._url)

    def _send(self, kind: str, data: Any) -> None:
        self._socket.send(msgspec.json.encode({"type": kind, "data": data}), text=True)

    def _receive(self) -> ServerMessage:
        try:
            # Without a timeout: the pool kills a worker whose call is overdue.
            text = self._socket.recv(decode=False)
        except ConnectionClosed as error:
            raise self._lost(error) from error
        return _typed(text, ServerMessage, self._url)

    def _lost(self, error: ConnectionClosed) -> Exception:
        # Not a lost session: a replay would only ask for the same long answer again.
        if error.sent is not None and error.sent.code == TOO_BIG:
            return EngineError(
                f"{self._url}: its answer is longer than {MOST_BYTES} bytes"
            )
        reason = error.rcvd.reason if error.rcvd else "the connection broke"
        return LostEngineError(f"{self._url}: the session is gone: {shown(reason)}")

    def _value(self, written: str) -> str | float | None:
        if self._values:
            number = self._values.get(written)
            return number if self._kind in NUMBERS or number is None else written
        if self._kind not in NUMBERS:
            return written
        return _number(written, self._kind)

    def _text(self, answer: OpenEnvStep) -> str:
        shown = self._options.text
        if shown is not None:
            if shown not in answer.observation:
                raise EngineError(f"its observation has no {shown}")
            return _plain(answer.observation[shown])
        lines = []
        for name, value in answer.observation.items():
            if name not in BOOKKEEPING:
                lines.append(f"{name}: {_plain(value)}")
        return "\n".join(lines)


def _number(written: str, kind: str) -> float | None:
    """The number that a text writes for a field of this kind; None if it is none."""
    # int() raises for thousands of digits too, which this suppresses.
    with suppress(ValueError):
        if written.removeprefix("-").isdecimal():
            return int(written)
        if kind == "number" and math.isfinite(number := float(written)):
            return number
    return None


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _chosen(schema: dict[str, Any], name: str | None, url: str) -> str:
    """The field of an action that the agent writes.

    Raises UsageError where the options must name it.
    """
    properties: dict[str, Any] = schema.get("properties", {})
    fields = [key for key in properties if key not in BOOKKEEPING]
    if name is not None:
        if name in fields:
            return name
        hint = nearest(name, fields)
        raise UsageError(
            f"environment.options.action: the actions of {url} have no {name}; {hint}"
        )
    # A schema leaves `required` out where all its fields have defaults.
    needed = [key for key in fields if key in schema.get("required", fields)]
    if len(needed) == 1:
        return needed[0]
    raise UsageError(
        f"{url}: its actions have the fields {', '.join(fields) or 'none'}; say which "
        "one the agent writes: environment.options.action=FIELD"
    )


def _headers() -> dict[str, str]:
    token = os.environ.get(TOKEN_VARIABLE)
    return {"Authorization": f"Bearer {token}"} if token else {}


def _is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in LOOPBACK


def _typed(data: "bytes | msgspec.Raw", kind: type[T], place: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        raise EngineError(
            f"{place}: its answer is not what the protocol allows: "
            f"{fault_in(error, bytes(data))}"
        ) from error


def _refuse_status(status: int, body: bytes, place: str) -> None:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise MissingError(
            f"{place}: refused (status {status}); set {TOKEN_VARIABLE} to the "
            "token of its server"
        )
    if status != HTTPStatus.OK:
        text = shown(body[:400].decode(errors="replace"))
        raise EngineError(f"{place}: status {status}: {text}")


def _missing(url: str, fault: str) -> MissingError:
    return MissingError(
        f"{url}: no world answers ({fault}); start its server, for instance with: "
        "agentcli env serve NAME"
    )


def _open(url: str) -> ClientConnection:
    scheme, _, rest = url.partition("://")
    address = f"{'wss' if scheme == 'https' else 'ws'}://{rest}/ws"
    try:
        return connect(
            address,
            additional_headers=_headers(),
            # A few bytes could stand for gigabytes, as over HTTP.
            compression=None,
            max_size=MOST_BYTES,
            open_timeout=CONNECT_SECONDS,
            proxy=None if _is_loopback(url) else True,
        )
    except InvalidStatus as error:
        # This passes a status of 200: an ordinary page, and no websocket.
        _refuse_status(error.response.status_code, b"", address)
        raise _missing(url, shown(str(error))) from error
    except (OSError, InvalidHandshake, WebSocketException) as error:
        raise _missing(url, shown(str(error)) or type(error).__name__) from error
