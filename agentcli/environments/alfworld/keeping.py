"""What is said when the world cannot keep files of its own: generated games,
translations, copies of the planner's library.

No other task would fare better then, so it is a WriteError, which ends a rollout, and
no EngineError, which ends a trajectory.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentcli.errors import WriteError

CACHE = "AGENTCLI_CACHE"
"""The environment variable that names the folder of games and translations."""


@contextmanager
def keeping(folder: Path, variable: str) -> Iterator[None]:
    """Turns an OSError of the block into a WriteError that names `folder` and the
    environment variable that names another, or into a MemoryError.
    """
    try:
        yield
    except OSError as error:
        cause = error.__cause__ if isinstance(error, WriteError) else error
        if isinstance(cause, OSError) and cause.errno == errno.ENOMEM:
            raise MemoryError(f"{folder}: {cause.strerror}") from error
        reason = getattr(cause, "strerror", None) or str(cause)
        remedy = f"make room there, or name another folder: {variable}=DIR"
        raise WriteError(f"{folder}: cannot be used ({reason}); {remedy}") from error
