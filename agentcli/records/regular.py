"""Opens regular files only: a pipe or a device could block a command forever.

Every read or write of a user's file uses this module. If a library opens the file
itself, the path is checked here first.
"""

import errno
import stat
from io import BufferedReader, FileIO
from pathlib import Path

from agentcli.errors import DataError

KINDS = {
    stat.S_IFDIR: "Is a directory",
    stat.S_IFIFO: "Is a named pipe",
    stat.S_IFSOCK: "Is a socket",
    stat.S_IFCHR: "Is a device",
    stat.S_IFBLK: "Is a device",
}


def is_there(path: Path) -> bool:
    """Whether the path exists, broken links and loops of links included.

    `Path.exists` is false for such links; here they count, and opening them is refused.
    Raises DataError if the folder cannot be searched.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise unreadable(path, error) from error
    return True


def require_regular(path: Path) -> None:
    """Raises OSError if the path exists and is not a regular file.

    A broken link is accepted; a loop of links is not.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except ValueError as error:
        raise OSError(errno.EINVAL, "Cannot be the name of a file") from error
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "Is not a regular file")
        raise OSError(errno.EINVAL, kind)


def refuse_irregular(path: Path) -> None:
    """Raises DataError where `require_regular` raises OSError."""
    try:
        require_regular(path)
    except OSError as error:
        raise unreadable(path, error) from error


def open_regular(path: Path) -> BufferedReader:
    """Opens a regular file for reading. Raises DataError for any other path."""
    try:
        require_regular(path)
        # Trees are lines of a megabyte: larger blocks halve the time to read them.
        return BufferedReader(FileIO(path), 1 << 18)
    except OSError as error:
        raise unreadable(path, error) from error


def read_regular(path: Path) -> bytes:
    """The bytes of a regular file. Raises DataError for any other path."""
    with open_regular(path) as file:
        try:
            return file.read()
        except OSError as error:
            raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> DataError:
    """The error for a file that cannot be read."""
    name = str(path)
    shown = name if name.isprintable() else repr(name)
    return DataError(f"{shown}: cannot be read ({error.strerror})")
