"""An HTTP client with deadlines, retries and a rate limit.

It does not depend on prompts or on the protocol used over it. Nothing that the server
sends is trusted (records/http.py). The waits that it asks for are limited. The key is
removed from all answers. Error texts become one line. Proxies set in the environment
(HTTP_PROXY, ...) are used for loopback addresses too, unless NO_PROXY lists them.
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

import msgspec

from agentcli.errors import PolicyError, UsageError
from agentcli.records.faults import UNREADABLE
from agentcli.records.files import derive_seed
from agentcli.records.http import (
    Asking,
    HttpAnswer,
    HttpClient,
    NoAnswerError,
    NotReachedError,
    checked_url,
)
from agentcli.records.settings import EndpointSettings
from agentcli.version import __version__

MAY_PASS = frozenset({408, 409, 429})
"""Statuses worth retrying, besides 5xx. OpenAI's own client retries the same ones."""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""In seconds. Each pause is twice as long as the one before."""
LONGEST_WAIT = 600.0
"""A server that asks for a longer wait (Retry-After, seconds) counts as refusing."""
CONNECTIONS = 256
"""Most attempts in flight; others wait, and their deadline does not run yet."""
LARGEST_BODY = 32 * 2**20
"""Most bytes of an answer."""
SHORTEST_SECRET = 8
"""In characters. A shorter key, such as EMPTY, is not secret but may occur in a reply.
"""
TEXT_SHOWN = 300
"""Most characters of a server's error text in our messages."""

T = TypeVar("T")


class Malformed(ValueError):
    """An answer that does not have the expected form; asking again may help.

    Raised by the `read` functions.
    """


class RequestFailed(PolicyError):
    """A request that failed for good.

    `status` and `text` come from the server; None and '' if it did not answer.
    """

    def __init__(self, message: str, status: int | None = None, text: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.text = text


class _Passing(Exception):
    """An attempt that failed for a temporary reason."""

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
    """The connection failed."""


class Endpoint:
    """Sends requests to paths below `settings.base_url`. Use it in only one event loop.

    `clock` (seconds) and `sleep` are for tests. Raises UsageError for an invalid base
    URL or key.
    """

    def __init__(
        self,
        settings: EndpointSettings,
        key: str | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self.url = base_url(settings, key)
        self._settings = settings
        self._key = key
        self._clock = clock
        self._sleep = sleep
        headers = {"User-Agent": f"agentcli/{__version__}"}
        if key:
            if not (key.isascii() and key.isprintable()):
                raise UsageError(
                    f"{settings.api_key_variable}: this is not a key: it holds "
                    "characters that no header may hold"
                )
            headers["Authorization"] = f"Bearer {key}"
        asking = Asking(
            seconds=settings.request_seconds,
            setting="policy.endpoint.request_seconds",
            headers=headers,
        )
        self._client = HttpClient(asking)
        self._reached = False
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._gate = asyncio.Lock()
        self._not_before = -math.inf

    async def close(self) -> None:
        await self._client.close()

    async def ask(
        self,
        path: str,
        read: Callable[[bytes], T],
        body: bytes | None = None,
        seed: int = 0,
    ) -> T:
        """Posts `body`, or gets without one, and parses the answer's body with `read`.

        `seed` determines the jitter of pauses. Raises RequestFailed after the last
        attempt, and at the first permanent refusal. If nothing listens at the address
        and the server has never been reached, it is raised at once.
        """
        url = self.url + path
        method = "GET" if body is None else "POST"
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
            # Jitter, so that requests that failed together do not come back together.
            pause = rng.uniform(0.5, 1.0) * min(LONGEST_PAUSE, doubled)
            await self._sleep(max(pause, failed.after))
        tried = f" ({attempt} attempts)" if attempt > 1 else ""
        raise RequestFailed(f"{url}: {failed}{tried}", failed.status, failed.text)

    async def _attempt(self, method: str, url: str, body: bytes | None) -> bytes:
        """The body of one successful answer.

        Raises _Passing, or RequestFailed for a permanent failure.
        """
        async with self._slots:
            await self._turn()
            # The error texts may contain the key, and the log shows causes.
            try:
                answer = await self._client.ask(method, url, LARGEST_BODY, body)
            except NotReachedError as error:
                raise _Unreachable(self._clean(str(error))) from None
            except NoAnswerError as error:
                self._reached = True
                raise _Passing(self._clean(str(error))) from None
        self._reached = True
        data = self._without_key(answer.body)
        if answer.is_success:
            return data
        raise self._refusal(url, answer, data)

    async def _turn(self) -> None:
        """Waits until this attempt may start.

        requests_per_minute spaces the starts evenly; Retry-After delays all requests.
        """
        rate = self._settings.requests_per_minute
        # Held while waiting, so that the others queue up behind and start one by one.
        async with self._gate:
            while (wait := self._not_before - self._clock()) > 0:
                await self._sleep(wait)
            if rate is not None:
                self._not_before = self._clock() + 60.0 / rate

    def _refusal(self, url: str, answer: HttpAnswer, data: bytes) -> Exception:
        """The exception for a failed request, temporary or permanent."""
        status = answer.status
        text = data.decode("utf-8", "replace")
        explanation = self._clean(_error_message(data, text))
        if 300 <= status < 400 and "location" in answer.headers:
            explanation = f"it moved to {self._clean(answer.headers['location'])}"
        reason = f"answered {status}"
        if explanation:
            reason += f": {explanation}"
        if status not in MAY_PASS and status < 500:
            return RequestFailed(f"{url}: {reason}", status, text)
        after = _retry_after(answer.headers.get("retry-after", ""))
        if after > LONGEST_WAIT:
            return RequestFailed(
                f"{url}: {reason} and asks to wait {after:.0f} s", status, text
            )
        if after:
            self._not_before = max(self._not_before, self._clock() + after)
        return _Passing(reason, status, text, after)

    def _without_key(self, data: bytes) -> bytes:
        """The body of an answer, with the key replaced by ***."""
        if self._key is None or len(self._key) < SHORTEST_SECRET:
            return data
        # With escapes the key can be spelt in other ways.
        if b"\\" in data:
            with suppress(*UNREADABLE):
                data = msgspec.json.encode(msgspec.json.decode(data))
        spelled = msgspec.json.encode(self._key)[1:-1]
        return data.replace(spelled, b"***").replace(self._key.encode(), b"***")

    def _clean(self, text: str) -> str:
        """The text as one printable line, without the key."""
        hidden = text.replace(self._key, "***") if self._key else text
        line = "".join(char if char.isprintable() else " " for char in hidden)
        return " ".join(line.split())[:TEXT_SHOWN]


def base_url(settings: EndpointSettings, key: str | None = None) -> str:
    """The base URL without a trailing slash.

    Raises UsageError if it is not a URL, or if it holds the key.
    """
    if not settings.base_url:
        raise UsageError(
            "policy.endpoint.base_url is not set; name the endpoint with --base-url "
            "http://HOST:PORT/v1"
        )
    secret = f"the environment variable {settings.api_key_variable}"
    if key and len(key) >= SHORTEST_SECRET and key in settings.base_url:
        raise UsageError(
            "policy.endpoint.base_url holds the key, which would be recorded; it "
            f"belongs into {secret} alone"
        )
    return checked_url(
        settings.base_url,
        "policy.endpoint.base_url",
        "--base-url http://HOST:PORT/v1",
        secret,
    )


def _error_message(data: bytes, text: str) -> str:
    """The message in one of the usual JSON error formats, else the whole text."""
    try:
        value = msgspec.json.decode(data)
    except UNREADABLE:
        return text
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    return value if isinstance(value, str) else text


def _retry_after(value: str) -> float:
    """Seconds to wait, from a number or an HTTP date; 0 if it is neither."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, TypeError, OverflowError):
            return 0.0
        # A date "-0000" has no zone; HTTP dates are in UTC.
        zoned = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = (zoned - datetime.now(UTC)).total_seconds()
    # float() also reads "nan".
    return 0.0 if math.isnan(seconds) else max(0.0, seconds)
