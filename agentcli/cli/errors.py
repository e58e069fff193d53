"""The end of a command: one line on stderr and the exit code, whatever went wrong.

0 done, 1 failed, 2 usage, 3 bad data, 4 environment or dependency missing, 130
interrupted. A traceback is shown only under AGENTCLI_DEBUG=1. Mistakes in the command
line itself are usage.py's to explain (exit code 2).
"""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from agentcli.errors import AgentCliError

FAILED, MISSING, INTERRUPTED = 1, 4, 130
LONGEST = 1000
"""Characters of a message."""


@contextmanager
def one_line_errors(when_interrupted: Callable[[], str]) -> Iterator[None]:
    """Turn exceptions of the block into one line and an exit code. `when_interrupted`
    says how to go on.
    """
    try:
        yield
    except AgentCliError as error:
        raise _end(str(error), error.exit_code) from error
    except KeyboardInterrupt as error:
        raise _end(f"interrupted; {when_interrupted()}", INTERRUPTED) from error
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "agentcli":
            raise _end(_unexpected(error), FAILED) from error
        from agentcli.requirements import remedy_for

        raise _end(
            f"{error.name} is not installed; type: {remedy_for(error.name or '')}",
            MISSING,
        ) from error
    except (typer.Exit, typer.Abort):
        raise
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise _end(_refused_by_system(error, when_interrupted), FAILED) from error
    except Exception as error:
        raise _end(_unexpected(error), FAILED) from error


def _refused_by_system(error: OSError, when_interrupted: Callable[[], str]) -> str:
    what = (
        f"{error.filename}: {error.strerror}"
        if error.filename is not None
        else str(error.strerror)
    )
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"{what}; make room, then {when_interrupted()}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{what}; change its permissions, or write elsewhere"
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR):
        return f"{what}; name another place"
    return _unexpected(error)


def _unexpected(error: Exception) -> str:
    return f"{type(error).__name__}: {error} (unexpected; AGENTCLI_DEBUG=1 shows where)"


def _end(message: str, code: int) -> typer.Exit:
    if os.environ.get("AGENTCLI_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    say(message)
    return typer.Exit(code)


def say(message: str) -> None:
    """One line on stderr."""
    print(f"error: {one_line(message)}", file=sys.stderr)


def one_line(message: str) -> str:
    """Make one line of a message that a terminal shows as it is.

    White space becomes a space, and what cannot be printed is escaped. A very long
    message loses its middle, since its end says what to type.
    """
    words = " ".join(message.split())
    line = "".join(
        letter if letter.isprintable() else repr(letter)[1:-1] for letter in words
    )
    if len(line) <= LONGEST:
        return line
    half = LONGEST // 2
    return f"{line[:half]} ... {line[-half:]}"
