"""The process that runs untrusted programs, behind every protection there is.

`python -S -s -P -B -m agentcli.worlds.tool_qa.sandbox_server`, started by the tool
python (tools/python.py) and by nothing else. It imports what programs may use, gives up
its privileges, and says that it is ready. Then it answers requests: a 4-byte big-endian
length and the program, against the same and the output.

A fork of it, the keeper, reads one request, runs the program in a fork of its own, and
answers. So the server never holds a program or an output, and no later one finds them.
"""

import ast
import contextlib
import ctypes
import errno
import gc
import importlib
import os
import resource
import select
import signal
import struct
import sys
from types import CodeType
from typing import Any

from agentcli.records import kernel

# The tables of arch/x86/entry/syscalls/syscall_64.tbl and asm-generic/unistd.h.
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


def filter_program() -> bytes:
    """The filter for this machine, as struct sock_filter wants it.

    A call of another machine's table ends the process.
    """
    column, machine = MACHINES[os.uname().machine]
    numbers = [row[column] for row in ALLOWED.values()]
    # The machine comes first: a number is another call in another table (seccomp(2)).
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


def refuse_other_calls() -> None:
    """Refuses this process every call that is not listed, for ever. Raises OSError."""
    code = filter_program()
    buffer = ctypes.create_string_buffer(code, len(code))
    whole = FilterProgram(len(code) // 8, ctypes.addressof(buffer))
    # An unprivileged process may set a filter only with this (seccomp(2)).
    kernel.control(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.call(
        "prctl",
        kernel.PR_SET_SECCOMP,
        ctypes.c_ulong(kernel.SECCOMP_MODE_FILTER),
        ctypes.byref(whole),
    )


MODULES = (
    *("bisect", "calendar", "cmath", "collections", "copy", "datetime", "decimal"),
    *("enum", "fractions", "functools", "heapq", "itertools", "json", "math"),
    *("numbers", "operator", "random", "re", "statistics", "string", "textwrap"),
)
"""What a program can import: no file can be opened once it runs."""
LENGTH = struct.Struct("!I")
READY = b"ready"
"""The first thing that the server says."""

CPU_SECONDS = 1
WALL_SECONDS = 10
"""Ends what waits; long, so that a busy machine does not end what computes."""
MEMORY_BYTES = 256 * 2**20
OUTPUT_BYTES = 4000
STACK_BYTES = 8 * 2**20

FINISHED, RAISED = 0, 3
"""Exit statuses of a program's process."""
OUT_OF_TIME = (
    f"it ran longer than {CPU_SECONDS} s of computing or {WALL_SECONDS} s in all"
)
"""One text for both: which of them comes first depends on the machine."""


def main() -> None:
    """Serves until stdin closes."""
    kernel.die_with_parent(signal.SIGKILL)
    for name in MODULES:
        importlib.import_module(name)
    nothing = os.open(os.devnull, os.O_RDWR)
    _give_up_privileges()
    _send(READY)
    # A child then copies fewer pages.
    gc.collect()
    gc.freeze()
    while _is_asked():
        keeper = os.fork()
        if keeper == 0:
            _answer(nothing)
        _, status = os.waitpid(keeper, 0)
        if status:
            # What ended it was not the program, so the client may ask another server.
            sys.exit(1)


def _give_up_privileges() -> None:
    if os.getuid() == 0:
        # Groups first: without the user id of root they could not be changed.
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        # The kernel forgets it when the user id changes (PR_SET_PDEATHSIG).
        kernel.die_with_parent(signal.SIGKILL)
    kernel.drop_capabilities()


def _is_asked() -> bool:
    """Waits for a request, and leaves it unread; False where none comes any more."""
    requests = select.poll()
    requests.register(0, select.POLLIN)
    ((_, event),) = requests.poll()
    return bool(event & select.POLLIN)


def _answer(nothing: int) -> None:
    """What a keeper does: one request, its program, and the answer; never returns."""
    failed = 1
    try:
        kernel.die_with_parent(signal.SIGKILL)
        (length,) = LENGTH.unpack(sys.stdin.buffer.read(LENGTH.size))
        program = sys.stdin.buffer.read(length).decode()
        _send(_run(program, nothing))
        failed = 0
    finally:
        # A keeper that returned would serve requests beside the server.
        os._exit(failed)


def _send(payload: bytes) -> None:
    sys.stdout.buffer.write(LENGTH.pack(len(payload)) + payload)
    sys.stdout.buffer.flush()


def _run(program: str, nothing: int) -> bytes:
    """The output of a program, cut at OUTPUT_BYTES; its last line says how it failed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _become(program, nothing, writing)
    os.close(writing)
    expired = False

    def expire(*_: object) -> None:
        nonlocal expired
        expired = True
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, expire)
    signal.alarm(WALL_SECONDS)
    output = b""
    while len(output) <= OUTPUT_BYTES and (chunk := os.read(reading, OUTPUT_BYTES)):
        output += chunk
    if len(output) > OUTPUT_BYTES:
        os.kill(child, signal.SIGKILL)
    # Until the alarm is off, nothing else may get its number.
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    signal.alarm(0)
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if len(output) > OUTPUT_BYTES:
        return _failed(
            output[:OUTPUT_BYTES], f"it wrote more than {OUTPUT_BYTES} bytes"
        )
    if expired or _computed_too_long(code, used.ru_utime + used.ru_stime):
        # How much it wrote by then depends on the machine.
        return _failed(b"", OUT_OF_TIME)
    # Nobody here has ended it, so the kernel was short of memory.
    if code == -signal.SIGKILL:
        raise OSError("the machine killed the program")
    if code < 0:
        return _failed(output, f"it died of {signal.Signals(-code).name}")
    if code not in (FINISHED, RAISED):
        return _failed(output, f"it exited with status {code}")
    return output


def _failed(output: bytes, problem: str) -> bytes:
    return output + b"\nerror: " + problem.encode()


def _computed_too_long(code: int, seconds: float) -> bool:
    """Whether the kernel ended it: at the soft limit, or at the hard one if it resists."""
    killed = code == -signal.SIGKILL and seconds > CPU_SECONDS
    return killed or code == -signal.SIGXCPU


def _become(program: str, nothing: int, writing: int) -> None:
    """Turns a fresh fork into the program, behind the last protections; never returns."""
    code = 1
    try:
        # A fork does not inherit it.
        kernel.die_with_parent(signal.SIGKILL)
        os.dup2(nothing, 0)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.closerange(3, 1024)
        # The filter comes last: it refuses the calls that the steps before it need.
        _limit()
        refuse_other_calls()
        code = _execute(program)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def _limit() -> None:
    """The limits of setrlimit(2); no descriptor can be opened any more."""
    # RLIMIT_FSIZE bounds files alone; output goes through a pipe and still passes.
    limits = {
        resource.RLIMIT_AS: MEMORY_BYTES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 0,
        resource.RLIMIT_STACK: STACK_BYTES,
    }
    for name, most in limits.items():
        resource.setrlimit(name, (most, most))
    # First SIGXCPU, which tells this end from others; a program may ignore it.
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))


def _execute(program: str) -> int:
    """Runs a program as an interactive Python would: a last expression is printed."""
    # The server has imported it before (MODULES): no file can be opened any more.
    import random

    random.seed(0)
    os.environ.clear()
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        statements, last = _compiled(program)
        exec(statements, names)
        if last is not None:
            value = eval(last, names)
            if value is not None:
                print(value)
    except SystemExit:
        return FINISHED
    except BaseException as error:
        print(f"error: {type(error).__name__}: {error}")
        return RAISED
    return FINISHED


def _compiled(program: str) -> tuple[CodeType, CodeType | None]:
    """The statements, and the expression that they end with."""
    module = ast.parse(program, "program")
    last = None
    if module.body and isinstance(module.body[-1], ast.Expr):
        expression = ast.Expression(module.body.pop().value)  # type: ignore[attr-defined]
        last = compile(expression, "program", "eval")
    return compile(module, "program", "exec"), last


if __name__ == "__main__":
    main()
