"""Trainings that are struck once they have written a snapshot; and that nothing of them is left."""

import os
import pty
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from processes import below

SECONDS = 900.0


class Ended(NamedTuple):
    """How a command ended, and what its terminal showed."""

    code: int
    shown: str


def struck_at_a_snapshot(
    command: Sequence[str],
    environment: Mapping[str, str],
    snapshot: Path,
    victim: Callable[[int], int],
    strike: signal.Signals = signal.SIGKILL,
    cwd: Path | None = None,
) -> Ended:
    """Strikes `victim` of a command that has written a snapshot, and waits until none of its processes runs any more."""
    terminal, theirs = pty.openpty()
    screen = {"TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(
        command, cwd=cwd, env={**environment, **screen}, stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    # The bar moves after every update.
    while not snapshot.exists():
        assert select.select([terminal], [], [], SECONDS)[0], shown.decode()
        shown += os.read(terminal, 65536)
    handles = [os.pidfd_open(pid) for pid in (process.pid, *below(process.pid))]
    os.kill(victim(process.pid), strike)
    for handle in handles:
        shown += _until_ended(handle, terminal)
    os.close(terminal)
    return Ended(process.wait(), shown.decode())


def second(launcher: int) -> int:
    """The process that is not the first, of those that train together."""
    ranks = [pid for pid in below(launcher) if b"\0RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes()]
    return ranks[0]


def _until_ended(handle: int, terminal: int) -> bytes:
    """Waits for the end of a process, and reads what is shown meanwhile: a full terminal would hold it up."""
    shown = b""
    watched = [handle, terminal]
    while ready := select.select(watched, [], [], SECONDS)[0]:
        if terminal in ready:
            try:
                shown += os.read(terminal, 65536)
            except OSError:  # nobody writes there any more
                watched = [handle]
        elif handle in ready:
            os.close(handle)
            return shown
    raise AssertionError("a process was left")
