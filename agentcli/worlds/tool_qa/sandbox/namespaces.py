"""The wall of namespaces: an empty file system, no network, no other process.

It needs no privilege where the kernel lets users have namespaces of their own
(unshare(2)). Inside a container it is often forbidden.
"""

import os

from agentcli.records import kernel

NEW_MOUNTS = 0x00020000
NEW_HOST_NAME = 0x04000000
NEW_IPC = 0x08000000
NEW_USERS = 0x10000000
NEW_PROCESSES = 0x20000000
NEW_NETWORK = 0x40000000
EVERYTHING_ELSE = NEW_MOUNTS | NEW_HOST_NAME | NEW_IPC | NEW_PROCESSES | NEW_NETWORK
"""Left all at once or not at all, after the users: their namespace permits it."""
READ_ONLY, NO_SETUID, NO_DEVICES, NO_PROGRAMS = 1, 2, 4, 8
BARE = READ_ONLY | NO_SETUID | NO_DEVICES | NO_PROGRAMS
RECURSIVE_PRIVATE = 0x4000 | 0x40000
DETACH = 2
PLACE = b"/tmp"
"""A folder that is there everywhere; the empty file system is put over it first."""
INSIDE = 1000
"""The user inside."""


def leave() -> None:
    """Moves this process into namespaces of its own; its children are alone there.

    Raises OSError where the machine does not allow it.
    """
    user, group = os.getuid(), os.getgid()
    kernel.call("unshare", NEW_USERS)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{INSIDE} {user} 1")
    _write("/proc/self/gid_map", f"{INSIDE} {group} 1")
    kernel.call("unshare", EVERYTHING_ELSE)


def empty_root() -> None:
    """Makes an empty, read-only folder the root. Raises OSError.

    For the first process of the namespaces. Whatever must be read from disk has been
    read by then: not even /proc and /dev are left.
    """
    kernel.call("mount", None, b"/", None, RECURSIVE_PRIVATE, None)
    kernel.call("mount", b"none", PLACE, b"tmpfs", BARE, b"size=4k")
    os.chdir(PLACE)
    # The old root is put over the new one, and then let go of (pivot_root(2)).
    kernel.call("syscall", _pivot_root(), b".", b".")
    kernel.call("umount2", b".", DETACH)
    os.chdir("/")


def _pivot_root() -> int:
    return 155 if os.uname().machine == "x86_64" else 41


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
