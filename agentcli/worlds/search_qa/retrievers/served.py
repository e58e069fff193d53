"""Where a retriever is served: the settings of http.py, without its libraries."""

from typing import Literal
from urllib.parse import urlsplit

import msgspec

from agentcli.environments.protocol import PLACE
from agentcli.errors import UsageError
from agentcli.records.section import CountFromZero, Positive

SETTING = f"{PLACE}.retriever"
FIRST_PAUSE = 0.25
"""Seconds before the second attempt; the pause doubles from one to the next."""


class HttpRetrieverOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Where a retriever is served, and how it is asked."""

    base_url: str
    """For instance http://localhost:8000."""
    protocol: Literal["search-r1", "single", "asearcher"] = "search-r1"
    """How it is asked: as Search-R1 does, so with one query a request, or as ASearcher
    does (with pages).
    """
    token_variable: str | None = None
    """The environment variable that holds a bearer token; the token itself is never a
    setting. None: the server wants none.
    """
    request_seconds: Positive = 10.0
    """Deadline of one attempt."""
    retries: CountFromZero = 3
    """Further attempts after a lost connection, a deadline or a 5xx, each after a longer
    pause.
    """

    @property
    def longest_seconds(self) -> float:
        """What a request can take with all its attempts and pauses."""
        pauses = FIRST_PAUSE * (2.0**self.retries - 1)
        return self.request_seconds * (self.retries + 1) + pauses


def checked_address(url: str) -> str:
    """The address without a slash at its end. Raises UsageError for any other text."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(
            f"{SETTING}.base_url: {url!r} is not the address of a retriever; write "
            f"--set {SETTING}.base_url=http://HOST:PORT"
        )
    return url.rstrip("/")
