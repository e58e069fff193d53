"""The process that runs programs of others, behind every wall there is.

`python -S -s -P -B -m agentcli.worlds.tool_qa.sandbox.server [--no-namespaces]`,
started by client.py and by nothing else. It imports what programs may use, walls itself
in, and greets with what it holds. Then it answers requests: a 4-byte big-endian length
and the program, against the same and the output.

A fork of it, the keeper, reads one request, runs the program in a fork of its own, and
answers. So the server never holds a program or an output, and no later one finds them.
"""

import ast
import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import struct
import sys
from types import CodeType
from typing import Any

from agentcli.records import kernel
from agentcli.worlds.tool_qa.sandbox import namespaces, seccomp

MODULES = (
    *("bisect", "calendar", "cmath", "collections", "copy", "datetime", "decimal"),
    *("enum", "fractions", "functools", "heapq", "itertools", "json", "math"),
    *("numbers", "operator", "random", "re", "statistics", "string", "textwrap"),
)
"""What a program can import: no file can be opened once it runs."""
LENGTH = struct.Struct("!I")

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
    namespaced, reason = _walled_in("--no-namespaces" not in sys.argv)
    for name in MODULES:
        importlib.import_module(name)
    nothing = os.open(os.devnull, os.O_RDWR)
    if namespaced:
        try:
            namespaces.empty_root()
        except OSError as error:
            namespaced, reason = False, str(error)
    _give_up_privileges()
    greeting = {
        "namespaces": namespaced,
        "reason": reason,
        "root": os.listdir("/") if namespaced else None,
        "processes": os.getpid(),
    }
    _send(json.dumps(greeting).encode())
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


def _walled_in(wanted: bool) -> tuple[bool, str]:
    """Enters namespaces where the machine allows it, and says why not."""
    kernel.die_with_parent(signal.SIGKILL)
    if not wanted:
        return False, "not asked for"
    try:
        namespaces.leave()
    except OSError as error:
        return False, str(error)
    child = os.fork()
    if child:
        # It would keep the pipes open that the first process of the namespaces serves.
        os.closerange(0, 3)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    kernel.die_with_parent(signal.SIGKILL)
    return True, ""


def _give_up_privileges() -> None:
    """Keeps a superuser from being one in here."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
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
    """Turns a fresh fork into the program, behind the last walls; never returns."""
    code = 1
    try:
        # A fork does not inherit it.
        kernel.die_with_parent(signal.SIGKILL)
        os.dup2(nothing, 0)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.closerange(3, 1024)
        _limit()
        seccomp.close_the_door()
        code = _execute(program)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def _limit() -> None:
    """The limits of setrlimit(2); no descriptor can be opened any more."""
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
