"""A lock that lets one process at a time write to a run directory.

The kernel holds the lock (flock on RUN/.lock), so it is released when its holder is
killed; a file that is left behind locks nothing. The file only says who holds the lock.
Readers need no lock: every file appears complete or grows by complete lines.

The package filelock is not used. On a file system without flock it falls back to the
existence of a file, which a killed process leaves behind for good. Its older versions
also empty the file when they fail to get the lock, which erases the holder's name.
"""

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

import msgspec

from agentcli.errors import UsageError
from agentcli.records.regular import refuse_irregular

NAME = ".lock"


class Holder(msgspec.Struct, kw_only=True):
    """The process that writes to a run directory."""

    command: str
    process: int
    host: str
    since: str


class RunLock:
    """The lock, held from construction until `release` or the end of the process.

    Creates the directory. Raises UsageError naming the other writer if there is one.
    """

    def __init__(self, run: Path, command: str, since: str) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self._path = run / NAME
        self._descriptor = _locked(self._path)
        holder = Holder(
            command=command,
            process=os.getpid(),
            host=socket.gethostname(),
            since=since,
        )
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, msgspec.json.encode(holder) + b"\n", 0)

    def release(self) -> None:
        """Releases the lock; may be called more than once."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def refuse_held(run: Path) -> None:
    """Raises UsageError, as RunLock does, if another process is writing.

    Writes nothing. During the check it takes a shared lock on an existing lock file, so
    several processes can check at once.
    """
    path = run / NAME
    refuse_irregular(path)
    with suppress(FileNotFoundError), open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _written_by_another(path) from error


def _locked(path: Path) -> int:
    """Opens and locks the file at `path`; returns its descriptor.

    The holder may remove the file after we opened it and before we lock it. Our lock
    would then protect nothing, so we try again.
    """
    refuse_irregular(path)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise _written_by_another(path) from error
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def _written_by_another(path: Path) -> UsageError:
    return UsageError(
        f"{path.parent} is being written by {_holder(path)}; wait for it, or write "
        "elsewhere with -o DIR"
    )


def _holder(path: Path) -> str:
    with suppress(OSError, msgspec.DecodeError):
        holder = msgspec.json.decode(path.read_bytes(), type=Holder)
        return (
            f"`{holder.command}` (process {holder.process} on {holder.host}, since "
            f"{holder.since})"
        )
    return "another command"
