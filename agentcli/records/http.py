"""Asks servers over HTTP, and trusts nothing that they send.

A request ends at its deadline, however slowly the server answers, headers included. A
body is read as it was sent, and only up to a limit. A compressed one is refused, since
a few of its bytes can stand for gigabytes. Redirects are not followed, because they
would pass on the headers.
"""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from agentcli.errors import UsageError
from agentcli.records.faults import shown

CONNECT_SECONDS = 10.0
KEPT_CONNECTIONS = 256


def checked_url(url: str, setting: str, remedy: str, secret: str) -> str:
    """The address of a server from `setting`, without a slash at its end.

    `remedy` says how it is written, and `secret` names the place of a password. Raises
    UsageError for any other text, and for an address with a password.
    """
    try:
        parts = urlsplit(url)
        httpx.URL(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        # urlsplit checks the port only where it is read; httpx also checks the host.
        valid = False
    # This comes first, because the other message quotes the address.
    if "@" in url.partition("//")[2].partition("/")[0]:
        raise UsageError(
            f"{setting} holds a password, which would be recorded; write {remedy}, and "
            f"put it into {secret}"
        )
    if not valid or parts.query or parts.fragment:
        raise UsageError(
            f"{setting}: {shown(url)} is not the address of a server; write {remedy}"
        )
    return url.rstrip("/")


class HttpAnswer(NamedTuple):
    """What a server answered."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


class NoAnswerError(Exception):
    """A request without a usable answer.

    The message says why, and may quote headers of the request and of the server.
    """


class NotReachedError(NoAnswerError):
    """There is no connection to the server."""


class LongAnswerError(NoAnswerError):
    """The answer is longer than allowed."""


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How a client asks."""

    seconds: float
    """Deadline of a request."""
    setting: str
    """The setting that holds the deadline, for messages."""
    headers: Mapping[str, str] = field(default_factory=dict)
    trust_env: bool = True
    """Whether proxies of the environment are used."""


class HttpClient:
    """Sends requests. Use it in only one event loop."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._client = httpx.AsyncClient(
            headers={**asking.headers, "Accept-Encoding": "identity"},
            # httpx times each read by itself; `ask` times the request as a whole.
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx.Limits(
                # Callers limit their requests themselves.
                max_connections=None,
                max_keepalive_connections=KEPT_CONNECTIONS,
            ),
            follow_redirects=False,
            trust_env=asking.trust_env,
        )

    async def ask(
        self, method: str, url: str, most_bytes: int, content: bytes | None = None
    ) -> HttpAnswer:
        """The answer, with a body of at most `most_bytes`; with 0 it is not read.

        `content` is JSON. Raises NoAnswerError.
        """
        seconds = self._asking.seconds
        headers = {} if content is None else {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream(
                    method, url, content=content, headers=headers
                ) as response,
            ):
                _refuse_compressed(response)
                # The status alone is often enough: a poll, a listener that is there.
                body = await _body(response, most_bytes) if most_bytes else b""
        except TimeoutError as error:
            raise NoAnswerError(
                f"no complete answer within {seconds:g} s ({self._asking.setting})"
            ) from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            reason = str(error) or "it timed out"
            raise NotReachedError(f"no connection: {reason}") from error
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise NoAnswerError(f"the connection broke: {reason}") from error
        return HttpAnswer(response.status_code, response.headers, body)

    async def close(self) -> None:
        """Closes all connections."""
        await self._client.aclose()


class BlockingHttpClient:
    """An HttpClient for code that is not asynchronous.

    Its requests run in the event loop of a thread: a blocking read could only limit the
    pause between two bytes, and a server that drips would hold it forever.
    """

    def __init__(self, asking: Asking) -> None:
        self._inner = HttpClient(asking)
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(self._loop,), daemon=True)
        thread.start()

    def ask(
        self, method: str, url: str, most_bytes: int, content: bytes | None = None
    ) -> HttpAnswer:
        """The answer, as from HttpClient.ask."""
        asked = self._inner.ask(method, url, most_bytes, content)
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result()

    def close(self) -> None:
        """Closes all connections, and ends the thread."""
        asyncio.run_coroutine_threadsafe(self._inner.close(), self._loop).result()
        # A loop may be stopped from its own thread only.
        self._loop.call_soon_threadsafe(self._loop.stop)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _refuse_compressed(response: httpx.Response) -> None:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise NoAnswerError(
            f"the answer is compressed (Content-Encoding: {encoding}); let its server "
            "send it as it is"
        )


async def _body(response: httpx.Response, most_bytes: int) -> bytes:
    body = bytearray()
    # Raw, since a decoder would unpack before the size is known.
    async for part in response.aiter_raw():
        body += part
        if len(body) > most_bytes:
            raise LongAnswerError(f"the answer is larger than {most_bytes} bytes")
    return bytes(body)
