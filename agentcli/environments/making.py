"""How far a world is with something that it makes once and that takes long.

A world does not know who looks on. It asks for a bar, and shows nothing unless the
command that runs has set one.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""(title, total) -> what is called with the number that is done so far."""


@contextmanager
def no_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Nobody looks on."""
    yield lambda done: None


BAR: ContextVar[Bar] = ContextVar("BAR", default=no_bar)
