"""How a failed command ends: one line on stderr and the exit code.

0 done, 1 failed, 2 usage, 3 bad data, 4 environment or dependency missing, 130
interrupted. A traceback is shown only under AGENTCLI_DEBUG=1. Mistakes in the command
line itself are explained in usage.py (exit code 2).
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from agentcli.errors import AgentCliError
from agentcli.records.free_memory import lacks_memory, shortage
from agentcli.records.processes import rank
from agentcli.registry import own_line

FAILED, MISSING, INTERRUPTED = 1, 4, 130
LONGEST = 1000
"""Most characters of a message."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)
BAD_PLACE = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR)


@contextmanager
def one_line_errors(how_to_go_on: Callable[[], str]) -> Iterator[None]:
    """Turns an exception of the block into one line and an exit code.

    `how_to_go_on` returns what to type after an interruption.
    """
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt as error:
        raise _end(f"interrupted; {how_to_go_on()}", INTERRUPTED) from error
    except AgentCliError as error:
        raise _end(str(error), error.exit_code) from error
    except ModuleNotFoundError as error:
        name = error.name or ""
        # If a module of agentcli is missing, that is a bug, not something to install.
        if name.partition(".")[0] == "agentcli":
            raise _end(_unexpected(error), FAILED) from error
        line = own_line(error)
        if line is not None:
            problem = f"{line}: {error}; install it, or correct the import"
            raise _end(problem, MISSING) from error
        from agentcli.requirements import remedy_for

        remedy = remedy_for(name)
        raise _end(f"{error.name} is not installed; type: {remedy}", MISSING) from error
    except OSError as error:
        # The reader closed the pipe, as `head` does: `main` ends silently.
        if error.errno == errno.EPIPE:
            raise
        raise _end(_refused_by_system(error, how_to_go_on), FAILED) from error
    except (Exception, SystemExit) as error:
        # A table of rich ends the program where the reader closed the pipe.
        if isinstance(error, SystemExit) and isinstance(
            cause := error.__context__, BrokenPipeError
        ):
            raise cause from None
        text = _unexpected(error)
        if lacks_memory(error):
            text = f"{shortage()}, then {how_to_go_on()}"
        raise _end(text, FAILED) from error


def _refused_by_system(error: OSError, how_to_go_on: Callable[[], str]) -> str:
    problem = str(error.strerror)
    if error.filename is not None:
        problem = f"{error.filename}: {problem}"
    if error.errno in NO_ROOM:
        return f"{problem}; make room, then {how_to_go_on()}"
    if error.errno in NO_PERMISSION:
        return f"{problem}; change its permissions, or write elsewhere"
    if error.errno == errno.ENOMEM:
        return f"{shortage()}, then {how_to_go_on()}"
    if error.errno in BAD_PLACE:
        return f"{problem}; name another place"
    return _unexpected(error)


def _unexpected(error: BaseException) -> str:
    line = own_line(error)
    if line is not None:
        return f"{line}: {type(error).__name__}: {error}"
    return f"{type(error).__name__}: {error} (unexpected; AGENTCLI_DEBUG=1 shows where)"


def _end(message: str, code: int) -> typer.Exit:
    if os.environ.get("AGENTCLI_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    say(message)
    return typer.Exit(code)


def say(message: str) -> None:
    """Prints an error as one line on stderr.

    If there are several processes, which may fail in different ways, each adds its
    rank.
    """
    from rich.console import Console
    from rich.text import Text

    number = rank()
    place = f"process {number}: " if number else ""
    line = Text.assemble(("error:", "bold red"), f" {place}{one_line(message)}")
    Console(stderr=True).print(line, soft_wrap=True)


def one_line(message: str) -> str:
    """Turns a message into one line that a terminal shows unchanged.

    White space becomes a space, and unprintable characters are escaped. The middle of a
    very long message is cut out, because its end says what to type.
    """
    from agentcli.records.faults import printable

    line = printable(" ".join(message.split()))
    if len(line) <= LONGEST:
        return line
    half = LONGEST // 2
    return f"{line[:half]} ... {line[-half:]}"
