"""Temporary folders that go with their process, or with the next one when it is killed.

A folder holds a file that its process keeps locked (flock). The kernel lets go of the
lock when the process is killed, so whoever gets it may remove the folder. A folder
without that file is somebody else's.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

PREFIX = "agentcli-"
LOCK = ".agentcli-scratch"


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder in `parent`, or where the system has its own.

    Removes what killed processes left there first. Raises OSError.
    """

    def __init__(self, parent: Path | None = None) -> None:
        place = parent or Path(tempfile.gettempdir())
        sweep(place)
        super().__init__(prefix=PREFIX, dir=place)
        self._lock = open(f"{self.name}/unlocked", "wb")  # noqa: SIM115 - by cleanup()
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Under its final name nobody ever sees it unlocked while we live.
        os.rename(self._lock.name, f"{self.name}/{LOCK}")

    def cleanup(self) -> None:
        """Removes the folder."""
        # The folder goes before its lock, or another process could sweep it meanwhile.
        super().cleanup()
        self._lock.close()


@cache
def sweep(place: Path) -> None:
    """Removes the folders of killed processes from `place`, once per process."""
    for folder in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if not folder.is_symlink() and folder.stat().st_uid == os.geteuid():
                _remove_if_dead(folder)


def _remove_if_dead(folder: Path) -> None:
    """Removes the folder of a killed process. Raises OSError for any other one."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(folder / LOCK, flags)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(lock)


def publish(folder: Path, write: Callable[[Path], None], scratch: Path) -> None:
    """Makes `folder` with what `write` puts into it: all of that or nothing.

    It is written in a folder of `scratch`. A folder that is there by then stays: another
    process was first. Raises OSError, and passes on what `write` raises.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with ScratchFolder(scratch) as place:
        new = Path(place) / "new"
        new.mkdir()
        write(new)
        try:
            new.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
