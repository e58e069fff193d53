"""Measures the time that requests wait for a model in another process."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Waiting:
    """A policy that waits for another process."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Time during which at least one request was waiting."""
        self._waiting = 0
        """Number of requests that are waiting for an answer."""
        self._since = 0.0
        """When `seconds` was last updated."""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Adds the time of the block to `seconds`; overlapping waits count once."""
        self._count()
        self._waiting += 1
        try:
            yield
        finally:
            self._count()
            self._waiting -= 1

    def _count(self) -> None:
        now = time.perf_counter()
        if self._waiting:
            self.seconds += now - self._since
        self._since = now
