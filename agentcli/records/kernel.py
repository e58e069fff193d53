"""Calls of the Linux kernel that Python has no name for.

Only the standard library is imported here: the sandbox starts without site-packages.
"""

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION = 0x20080522
LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """The result of a function of the C library. Raises OSError where it is -1."""
    result: int = getattr(_libc, name)(*arguments)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def control(option: int, *values: int) -> None:
    """A prctl(2) of up to four numbers. Raises OSError."""
    padded = [*values, 0, 0, 0, 0][:4]
    call("prctl", option, *map(ctypes.c_ulong, padded))


def die_with_parent(signal: int) -> None:
    """Has the kernel send `signal` when the thread that started this process ends."""
    control(PR_SET_PDEATHSIG, signal)


def drop_capabilities() -> None:
    """Gives up every capability, for ever. Raises OSError."""
    for capability in range(LAST_CAPABILITY + 1):
        try:
            control(PR_CAPBSET_DROP, capability)
        except OSError:
            # The kernel knows no more of them, or there were none to begin with.
            break
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    call("capset", ctypes.byref(header), ctypes.byref(nothing))
