"""An HTTP endpoint asked with patience: deadlines, retries, a rate limit.

It knows neither prompts nor the protocol spoken over it. Nothing that the server sends
is trusted. Bodies are bounded, and so are the waits it asks for. Redirects are not
followed, since the key would travel along. The key is taken out of whatever it answers.
Error texts become one line. Proxies of the environment (HTTP_PROXY, ...) are used for
loopback addresses too, unless NO_PROXY names them.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from agentcli import __version__
from agentcli.errors import PolicyError, UsageError
from agentcli.records.faults import UNREADABLE
from agentcli.records.files import derive_seed
from agentcli.records.settings import EndpointSettings

MAY_PASS = frozenset({408, 409, 429})
"""Refusals worth another attempt, beside 5xx. OpenAI's own client retries the same
ones.
"""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds. The pause doubles from one attempt to the next."""
LONGEST_WAIT = 600.0
"""A server that asks for a longer wait (Retry-After, seconds) has refused."""
CONNECT_SECONDS = 10.0
CONNECTIONS = 256
"""Most attempts in flight; the others wait outside their deadline."""
LARGEST_BODY = 32 * 2**20
"""Bytes of an answer."""
SHORTEST_SECRET = 8
"""Characters. A shorter key, such as EMPTY, is no secret but may be a word of a reply."""
TEXT_SHOWN = 300
"""Characters of a server's error text in our messages."""

T = TypeVar("T")


class Malformed(ValueError):
    """An answer that is not what was asked for; asking again may help.

    The `read` functions raise it.
    """


class RequestFailed(PolicyError):
    """A request that failed for good.

    `status` and `text` are the server's; None and '' when it did not answer.
    """

    def __init__(self, message: str, status: int | None = None, text: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.text = text


class _Passing(Exception):
    """An attempt that failed in a way that may pass."""

    def __init__(
        self,
        reason: str,
        status: int | None = None,
        text: str = "",
        after: float = 0.0,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.text = text
        self.after = after


class _Unreachable(_Passing):
    """No connection could be made."""


class Endpoint:
    """Requests below `settings.base_url`. Use one in one event loop.

    `clock` (seconds) and `sleep` are for tests. Raises UsageError for a base URL or key
    that cannot be one.
    """

    def __init__(
        self,
        settings: EndpointSettings,
        key: str | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self.url = checked_url(settings.base_url, key)
        self._settings = settings
        self._key = key
        self._clock = clock
        self._sleep = sleep
        headers = {
            "User-Agent": f"agentcli/{__version__}",
            "Accept-Encoding": "identity",
        }
        if key:
            if not (key.isascii() and key.isprintable()):
                raise UsageError(
                    f"{settings.api_key_variable}: this is not a key: it holds "
                    "characters that no header may hold"
                )
            headers["Authorization"] = f"Bearer {key}"
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=CONNECTIONS
            ),
            follow_redirects=False,
        )
        self._reached = False
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._gate = asyncio.Lock()
        self._not_before = -math.inf

    async def close(self) -> None:
        """Closes all connections."""
        await self._client.aclose()

    async def get(self, path: str, read: Callable[[bytes], T]) -> T:
        """Asks as `post` does, without a body."""
        return await self._ask("GET", path, read, None, 0)

    async def post(
        self,
        path: str,
        read: Callable[[bytes], T],
        body: bytes,
        seed: int,
    ) -> T:
        """Sends `body` and reads the body of the answer.

        `seed` decides the jitter of pauses. Raises RequestFailed after the last
        attempt, and at the first refusal that will not pass. Where nothing listens and
        the server has never been reached, it is raised at once.
        """
        return await self._ask("POST", path, read, body, seed)

    async def _ask(
        self,
        method: str,
        path: str,
        read: Callable[[bytes], T],
        body: bytes | None,
        seed: int,
    ) -> T:
        url = self.url + path
        attempts = self._settings.retries + 1
        for attempt in range(1, attempts + 1):
            try:
                return read(await self._attempt(method, url, body))
            except Malformed as error:
                failed = _Passing(f"the answer is malformed: {error}")
            except _Passing as error:
                failed = error
            nobody_there = isinstance(failed, _Unreachable) and not self._reached
            if attempt == attempts or nobody_there:
                break
            rng = random.Random(derive_seed(seed, "pause", attempt))
            doubled = FIRST_PAUSE * 2.0 ** (attempt - 1)
            pause = rng.uniform(0.5, 1.0) * min(LONGEST_PAUSE, doubled)
            await self._sleep(max(pause, failed.after))
        tried = f" ({attempt} attempts)" if attempt > 1 else ""
        raise RequestFailed(f"{url}: {failed}{tried}", failed.status, failed.text)

    async def _attempt(self, method: str, url: str, body: bytes | None) -> bytes:
        """The body of one successful answer.

        Raises _Passing, or RequestFailed for what will not pass.
        """
        headers = {"Content-Type": "application/json"} if body is not None else {}
        seconds = self._settings.request_seconds
        async with self._slots:
            await self._turn()
            try:
                async with (
                    asyncio.timeout(seconds),
                    self._client.stream(
                        method, url, content=body, headers=headers
                    ) as response,
                ):
                    self._reached = True
                    data = self._without_key(await _bounded(response))
            except TimeoutError as error:
                raise _Passing(
                    f"no complete answer within {seconds:g} s "
                    "(policy.endpoint.request_seconds)"
                ) from error
            # The libraries' own texts may quote the key, and the log shows causes.
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise _Unreachable(
                    f"no connection: {self._clean(str(error)) or 'it timed out'}"
                ) from None
            except (httpx.TransportError, httpx.DecodingError) as error:
                reason = self._clean(str(error)) or type(error).__name__
                raise _Passing(f"the connection broke: {reason}") from None
        if response.is_success:
            return data
        raise self._refusal(url, response, data)

    async def _turn(self) -> None:
        """Waits until this attempt may start.

        requests_per_minute spaces starts evenly; Retry-After holds up everyone.
        """
        rate = self._settings.requests_per_minute
        async with self._gate:
            while (wait := self._not_before - self._clock()) > 0:
                await self._sleep(wait)
            if rate is not None:
                self._not_before = self._clock() + 60.0 / rate

    def _refusal(self, url: str, response: httpx.Response, data: bytes) -> Exception:
        """The exception for a failed request: one that may pass, or that will not."""
        status = response.status_code
        text = data.decode("utf-8", "replace")
        explanation = self._clean(_error_message(data, text))
        if response.has_redirect_location:
            explanation = f"it moved to {self._clean(response.headers['location'])}"
        reason = f"answered {status}"
        if explanation:
            reason += f": {explanation}"
        if status not in MAY_PASS and status < 500:
            return RequestFailed(f"{url}: {reason}", status, text)
        after = _retry_after(response.headers.get("retry-after", ""))
        if after > LONGEST_WAIT:
            return RequestFailed(
                f"{url}: {reason} and asks to wait {after:.0f} s", status, text
            )
        if after:
            self._not_before = max(self._not_before, self._clock() + after)
        return _Passing(reason, status, text, after)

    def _without_key(self, data: bytes) -> bytes:
        """The body of an answer with *** in the place of the key."""
        if self._key is None or len(self._key) < SHORTEST_SECRET:
            return data
        # Escapes can spell the key in other ways.
        if b"\\" in data:
            with suppress(*UNREADABLE):
                data = msgspec.json.encode(msgspec.json.decode(data))
        spelled = msgspec.json.encode(self._key)[1:-1]
        return data.replace(spelled, b"***").replace(self._key.encode(), b"***")

    def _clean(self, text: str) -> str:
        """Makes one printable line of the text, without the key."""
        hidden = text.replace(self._key, "***") if self._key else text
        line = "".join(char if char.isprintable() else " " for char in hidden)
        return " ".join(line.split())[:TEXT_SHOWN]


async def _bounded(response: httpx.Response) -> bytes:
    """The body. Raises _Passing for one that is too large."""
    parts = []
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > LARGEST_BODY:
            raise _Passing(f"the answer is larger than {LARGEST_BODY} bytes")
        parts.append(part)
    return b"".join(parts)


def checked_url(url: str | None, key: str | None = None) -> str:
    """The base URL without a slash at its end. Raises UsageError for any other text."""
    if not url:
        raise UsageError(
            "policy.endpoint.base_url is not set; name the endpoint with --base-url "
            "http://HOST:PORT/v1"
        )
    try:
        parts = urlsplit(url)
        httpx.URL(url)
        is_server = parts.hostname and parts.port != 0
        valid = parts.scheme in ("http", "https") and is_server
    except (ValueError, httpx.InvalidURL):
        valid = False
    if not valid or parts.query or parts.fragment:
        raise UsageError(
            f"policy.endpoint.base_url: {url!r} is not an endpoint; write --base-url "
            "http://HOST:PORT/v1"
        )
    holds_key = key and len(key) >= SHORTEST_SECRET and key in url
    if "@" in parts.netloc or holds_key:
        raise UsageError(
            "policy.endpoint.base_url holds a password or key, which would be "
            "recorded; put "
            "the key into the environment variable that "
            "policy.endpoint.api_key_variable names"
        )
    return url.rstrip("/")


def _error_message(data: bytes, text: str) -> str:
    """The message in one of the usual JSON shapes of errors, else the whole text."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    return value if isinstance(value, str) else text


def _retry_after(value: str) -> float:
    """Seconds to wait, from a number or an HTTP date; 0 where there is neither."""
    try:
        seconds = float(value)
    except ValueError:
        seconds = _seconds_until(value)
    return 0.0 if math.isnan(seconds) else max(0.0, seconds)


def _seconds_until(value: str) -> float:
    """Seconds from now to an HTTP date; 0 for what is not a date."""
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return 0.0
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return (date - datetime.now(UTC)).total_seconds()
