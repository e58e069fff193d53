"""Linux system calls that Python does not wrap.

Imports only the standard library: the sandbox starts without site-packages.
"""

import ctypes
import os

# From <linux/prctl.h>, <linux/seccomp.h> and <linux/capability.h>; these
# numbers are part of the kernel's interface and never change.
PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION = 0x20080522
LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Calls a function of the C library. Raises OSError if it returns -1."""
    result: int = getattr(_libc, name)(*arguments)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def control(option: int, *values: int) -> None:
    """Calls prctl(2) with up to four numbers. Raises OSError."""
    # Some options refuse unused arguments that are not 0.
    padded = [*values, 0, 0, 0, 0][:4]
    call("prctl", option, *map(ctypes.c_ulong, padded))


def die_with_parent(signal: int) -> None:
    """Makes the kernel send `signal` when the thread that started this process ends."""
    control(PR_SET_PDEATHSIG, signal)


def drop_capabilities() -> None:
    """Gives up every capability for good. Raises OSError."""
    for capability in range(LAST_CAPABILITY + 1):
        try:
            control(PR_CAPBSET_DROP, capability)
        except OSError:
            # The kernel has no capability of this number, or this process had none.
            break
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    call("capset", ctypes.byref(header), ctypes.byref(nothing))
