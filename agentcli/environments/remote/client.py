"""The client side: HTTP for facts about a world, a websocket for a session.

Nothing that a server sends is trusted: bodies and waits are limited (records/http.py),
answers are typed, and error texts become one line. Losing a session ends the engine process
(LostEngineError), so that the pool replays its states, once.
"""

import os
from contextlib import ExitStack, suppress
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    WebSocketException,
)
from websockets.sync.client import ClientConnection, connect

from agentcli import errors
from agentcli.environments.protocol import LostEngineError, NoEngineLeftError
from agentcli.environments.remote import wire
from agentcli.records.faults import UNREADABLE, fault_in, shown
from agentcli.records.http import (
    Asking,
    BlockingHttpClient,
    LongAnswerError,
    NoAnswerError,
)

CONNECT_SECONDS = 10.0
HTTP_SECONDS = 10.0
"""The shortest deadline of an answer over HTTP, which may be a list of all tasks."""
TOO_BIG = 1009
"""The close code of a message that was too long (RFC 6455)."""
AS_THEY_ARE = {
    "ReplayMismatchError": errors.ReplayMismatchError,
    "UsageError": errors.UsageError,
    "WriteError": errors.WriteError,
}

T = TypeVar("T")


def refuse_bad_url(url: str) -> None:
    """Raises UsageError for an address that names no server."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise errors.UsageError(
            f"environment.name: {shown(url)}: {error}; write http://HOST:PORT"
        ) from error
    if not host or port == 0 or parts.query or parts.fragment:
        raise errors.UsageError(
            f"environment.name: {shown(url)} names no server; write http://HOST:PORT"
        )
    if parts.username or parts.password:
        raise errors.UsageError(
            f"environment.name: a server's address would be recorded with its "
            f"password; set {wire.TOKEN_VARIABLE} instead"
        )


def _headers() -> dict[str, str]:
    token = os.environ.get(wire.TOKEN_VARIABLE)
    return {"Authorization": f"Bearer {token}"} if token else {}


def _is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in wire.LOOPBACK


class Caller:
    """Asks a server over HTTP; an answer has `seconds` in all."""

    def __init__(self, url: str, seconds: float = HTTP_SECONDS) -> None:
        self.url = url.rstrip("/")
        # A proxy of the environment is not for this machine's own addresses.
        asking = Asking(
            seconds=seconds,
            setting="environment.deadline_seconds",
            headers=_headers(),
            trust_env=not _is_loopback(url),
        )
        self._client = BlockingHttpClient(asking)

    def get(self, path: str, kind: type[T], **query: str) -> T | None:
        """The typed answer of a path; None if there is nothing at that path."""
        words = f"?{urlencode(query)}" if query else ""
        return self._asked("GET", f"{path}{words}", kind)

    def post(self, path: str, body: Any, kind: type[T]) -> T:
        """The answer to a body. Raises EngineError where there is none."""
        content = msgspec.json.encode(body)
        answer = self._asked("POST", path, kind, content)
        if answer is None:
            raise errors.EngineError(f"{self.url}{path}: there is no such thing")
        return answer

    def _asked(
        self, method: str, path: str, kind: type[T], content: bytes | None = None
    ) -> T | None:
        place = f"{self.url}{path}"
        try:
            answer = self._client.ask(method, place, wire.MOST_BYTES, content)
        except LongAnswerError as error:
            raise errors.EngineError(f"{place}: {error}") from error
        except NoAnswerError as error:
            raise _missing(self.url, shown(str(error))) from error
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        _refuse_status(answer.status, answer.body, place)
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except UNREADABLE as error:
            raise errors.EngineError(
                f"{place}: its answer is not what the protocol allows: "
                f"{fault_in(error, answer.body)}"
            ) from error


def _refuse_status(status: int, body: bytes, place: str) -> None:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise errors.MissingError(
            f"{place}: refused (status {status}); set {wire.TOKEN_VARIABLE} to the "
            "token of its server"
        )
    if status != HTTPStatus.OK:
        text = shown(body[:400].decode(errors="replace"))
        raise errors.EngineError(f"{place}: status {status}: {text}")


def _missing(url: str, fault: str) -> errors.MissingError:
    return errors.MissingError(
        f"{url}: no world answers ({fault}); start its server, for instance with: "
        "agentcli env serve NAME"
    )


class Connection:
    """One session of a server.

    Raises MissingError where nobody answers, NoEngineLeftError where all sessions are
    taken.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._closing = ExitStack()
        self._socket = self._closing.enter_context(_open(self._url))
        # A server that has no session left says so and hangs up, perhaps before it
        # hears anything; another one is silent until it is asked.
        with suppress(ConnectionClosed):
            self._socket.send(wire.packed("state", {}))
        answer = self._receive()
        if answer.type == "error" and self._fault(answer).code == wire.CAPACITY:
            self.close()
            raise NoEngineLeftError(
                f"{self._url}: all its sessions are taken; end who plays there, or let "
                "its server have more"
            )

    def ask(self, kind: str, data: Any, expected: str, as_type: type[T]) -> T:
        """Sends a message; gives the data of its answer.

        Raises LostEngineError for a lost session, and what the server reports.
        """
        try:
            self._socket.send(wire.packed(kind, data))
        except ConnectionClosed as error:
            raise self._lost(error) from error
        answer = self._receive()
        if answer.type == "error":
            self._raise(self._fault(answer))
        if answer.type != expected:
            raise errors.EngineError(
                f"{self._url}: answered {shown(answer.type)!r} to {kind}, and not "
                f"{expected!r}"
            )
        return self._typed(answer.data, as_type)

    def close(self) -> None:
        """Ends the session."""
        self._closing.close()

    def _receive(self) -> wire.ServerMessage:
        try:
            text = self._socket.recv(decode=False)
        except ConnectionClosed as error:
            raise self._lost(error) from error
        return self._typed(text, wire.ServerMessage)

    def _typed(self, data: "bytes | msgspec.Raw", kind: type[T]) -> T:
        try:
            return msgspec.json.decode(data, type=kind)
        except UNREADABLE as error:
            raise errors.EngineError(
                f"{self._url}: its answer is not what the protocol allows: "
                f"{fault_in(error, bytes(data))}"
            ) from error

    def _fault(self, answer: wire.ServerMessage) -> wire.Fault:
        return self._typed(answer.data, wire.Fault)

    def _raise(self, fault: wire.Fault) -> None:
        text = f"{self._url}: {shown(fault.message)}"
        if fault.code == wire.SESSION:
            raise LostEngineError(text)
        raise AS_THEY_ARE.get(fault.kind, errors.EngineError)(text)

    def _lost(self, error: ConnectionClosed) -> Exception:
        if error.sent is not None and error.sent.code == TOO_BIG:
            return errors.EngineError(
                f"{self._url}: its answer is longer than {wire.MOST_BYTES} bytes"
            )
        reason = error.rcvd.reason if error.rcvd else "the connection broke"
        return LostEngineError(f"{self._url}: the session is gone: {shown(reason)}")


def _open(url: str) -> ClientConnection:
    scheme, _, rest = url.partition("://")
    address = f"{'wss' if scheme == 'https' else 'ws'}://{rest}/ws"
    try:
        return connect(
            address,
            additional_headers=_headers(),
            compression=None,
            max_size=wire.MOST_BYTES,
            open_timeout=CONNECT_SECONDS,
            proxy=None if _is_loopback(url) else True,
        )
    except InvalidStatus as error:
        _refuse_status(error.response.status_code, b"", address)
        raise _missing(url, shown(str(error))) from error
    except (OSError, InvalidHandshake, WebSocketException) as error:
        raise _missing(url, shown(str(error)) or type(error).__name__) from error
