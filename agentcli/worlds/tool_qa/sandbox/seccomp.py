"""The wall of system calls: what is not listed answers EPERM (seccomp(2), BPF).

The list holds what Python needs to compute, to write to descriptors that are open, to
read the clock and to end. So nothing can be opened, created, connected, signalled or
started: no file, no socket, no process, no thread. Nor can be asked whether a file is
there: of all calls that take a path none is listed.
"""

import ctypes
import errno
import os
import struct

from agentcli.records import kernel

ALLOWED: dict[str, tuple[int, int]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "exit": (60, 93),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "times": (100, 153),
    "sigaltstack": (131, 132),
    "futex": (202, 98),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "exit_group": (231, 94),
    "getrandom": (318, 278),
}
"""Name -> its number on x86-64 and on 64-bit ARM."""
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine -> the column above, and the kernel's name for it (AUDIT_ARCH)."""

LOAD, JUMP_EQUAL, JUMP_FROM, RETURN = 0x20, 0x15, 0x35, 0x06
NUMBER_AT, MACHINE_AT = 0, 4
"""Offsets in struct seccomp_data."""
OTHER_TABLE = 0x40000000
"""Calls from here on belong to another table (x32) with the same machine."""
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE = 0x00050000 | errno.EPERM


def supported() -> bool:
    """Whether the numbers of this machine's system calls are known."""
    return os.uname().sysname == "Linux" and os.uname().machine in MACHINES


def program() -> bytes:
    """The filter for this machine, as struct sock_filter wants it.

    A call of another machine's table ends the process.
    """
    column, machine = MACHINES[os.uname().machine]
    numbers = [row[column] for row in ALLOWED.values()]
    lines = [
        (LOAD, 0, 0, MACHINE_AT),
        (JUMP_EQUAL, 1, 0, machine),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
        (JUMP_FROM, 0, 1, OTHER_TABLE),
        (RETURN, 0, 0, KILL),
    ]
    for number in numbers:
        lines.append((JUMP_EQUAL, 0, 1, number))
        lines.append((RETURN, 0, 0, ALLOW))
    lines.append((RETURN, 0, 0, REFUSE))
    return b"".join(struct.pack("HBBI", *line) for line in lines)


class FilterProgram(ctypes.Structure):
    """The kernel's struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_void_p))


def close_the_door() -> None:
    """Refuses this process every call that is not listed, for ever. Raises OSError."""
    code = program()
    buffer = ctypes.create_string_buffer(code, len(code))
    whole = FilterProgram(len(code) // 8, ctypes.addressof(buffer))
    kernel.control(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.call(
        "prctl",
        kernel.PR_SET_SECCOMP,
        ctypes.c_ulong(kernel.SECCOMP_MODE_FILTER),
        ctypes.byref(whole),
    )
