"""The refusal of a world that cannot keep its files.

Its files are generated games, translations and copies of the planner's library. Every
other task would fail too, so this is a WriteError, which ends the rollout. An
EngineError would end one trajectory only.
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
    """Turns an OSError of the block into a WriteError, or into a MemoryError.

    The message names `folder` and the environment variable that names another.
    """
    try:
        yield
    except OSError as error:
        # A WriteError is an OSError too; the reason is in what it was raised from.
        cause = error.__cause__ if isinstance(error, WriteError) else error
        if isinstance(cause, OSError) and cause.errno == errno.ENOMEM:
            raise MemoryError(f"{folder}: {cause.strerror}") from error
        reason = getattr(cause, "strerror", None) or str(cause)
        remedy = f"make room there, or name another folder: {variable}=DIR"
        raise WriteError(f"{folder}: cannot be used ({reason}); {remedy}") from error
