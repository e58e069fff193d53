"""Keeps libraries from printing where only the command prints."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

from agentcli.records.faults import printable

STDOUT = 1


@contextlib.contextmanager
def no_progress_bars() -> Iterator[None]:
    """Stops transformers from printing progress bars while it loads or saves."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextlib.contextmanager
def only_errors_logged() -> Iterator[None]:
    """Hides progress bars, and the report that `load_network` checks itself."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with no_progress_bars():
            yield
    finally:
        logging.set_verbosity(verbosity)


@contextlib.contextmanager
def stdout_on_stderr() -> Iterator[None]:
    """Moves what compiled code prints on stdout to stderr, made printable.

    A library may quote a file of the model there.
    """
    with contextlib.ExitStack() as stack:
        # Without a stdout there is nothing to keep clean.
        with contextlib.suppress(OSError):
            if sys.stdout is not None:
                sys.stdout.flush()
            ours = os.dup(STDOUT)
            stack.callback(os.close, ours)
            aside = stack.enter_context(tempfile.TemporaryFile())
            os.dup2(aside.fileno(), STDOUT)
            stack.callback(_show, aside.fileno())
            stack.callback(os.dup2, ours, STDOUT)
        yield


def _show(descriptor: int) -> None:
    """Prints the lines of a file on stderr."""
    size = os.fstat(descriptor).st_size
    for line in os.pread(descriptor, size, 0).decode(errors="replace").splitlines():
        print(printable(line), file=sys.stderr)
