"""How a command ends: one line on stderr and the exit code, whatever went wrong.

0 done, 1 failed, 2 usage, 3 bad data, 4 environment or dependency missing, 130 interrupted. A traceback is shown only
under AGENTCLI_DEBUG=1. Mistakes in the command line itself are Typer's to report (exit code 2).
"""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from agentcli.errors import AgentCliError

FAILED, MISSING, INTERRUPTED = 1, 4, 130


@contextmanager
def one_line_errors(when_interrupted: Callable[[], str]) -> Iterator[None]:
    """Turn exceptions of the block into one line and an exit code; `when_interrupted` says how to go on."""
    try:
        yield
    except AgentCliError as error:
        raise _end(str(error), error.exit_code) from error
    except KeyboardInterrupt as error:
        raise _end(f"interrupted; {when_interrupted()}", INTERRUPTED) from error
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "agentcli":
            raise _end(_unexpected(error), FAILED) from error
        raise _end(f"{error.name} is not installed; type: pip install 'agentcli[alfworld]'", MISSING) from error
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise
        raise _end(_unexpected(error), FAILED) from error


def _unexpected(error: Exception) -> str:
    return f"{type(error).__name__}: {error} (unexpected; AGENTCLI_DEBUG=1 shows where)"


def _end(message: str, code: int) -> typer.Exit:
    if os.environ.get("AGENTCLI_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return typer.Exit(code)
