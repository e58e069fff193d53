"""The progress of a world that makes something once, which takes a long time.

A world does not know which command runs it. It asks for a progress bar, and shows
nothing unless the command has set one. This file imports nothing, since every command
does import it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""(title, total) -> a function to call with the number finished so far."""


@contextmanager
def no_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar that shows nothing."""
    yield lambda done: None


BAR: ContextVar[Bar] = ContextVar("BAR", default=no_bar)
