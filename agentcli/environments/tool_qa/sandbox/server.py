"""The process that runs programs of others: one fork each, behind every wall there is.

`python -S -s -P -B -m agentcli.environments.tool_qa.sandbox.server [--no-namespaces]`,
started by client.py and by nothing else. It imports what programs may use, walls itself
in, and greets with what it holds. Then it answers requests: a 4-byte big-endian length
and the program, against the same and the output.
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
import time
from collections.abc import Iterator
from types import CodeType
from typing import Any

from agentcli.environments.tool_qa.sandbox import namespaces, seccomp
from agentcli.records import kernel

MODULES = (
    *("bisect", "calendar", "cmath", "collections", "copy", "datetime", "decimal"),
    *("enum", "fractions", "functools", "heapq", "itertools", "json", "math"),
    *("numbers", "operator", "random", "re", "statistics", "string", "textwrap"),
)
"""What a program can import: no file can be opened once it runs."""
LENGTH = struct.Struct("!I")

CPU_SECONDS = 1
WALL_SECONDS = 3.0
MEMORY_BYTES = 256 * 2**20
OUTPUT_BYTES = 4000
STACK_BYTES = 8 * 2**20

FINISHED, RAISED = 0, 3
"""Exit statuses of a program's process."""


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
    for request in _requests():
        _send(_run(request, nothing))


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


def _requests() -> Iterator[str]:
    while len(header := sys.stdin.buffer.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(header)
        yield sys.stdin.buffer.read(length).decode()


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
    try:
        output, problem = _output_of(reading)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if not problem and code not in (FINISHED, RAISED):
        problem = _cause(code, used.ru_utime + used.ru_stime)
    if problem:
        output += b"\nerror: " + problem.encode()
    return output


def _output_of(reading: int) -> tuple[bytes, str]:
    """What comes out until the end, the deadline or the limit, and which it was."""
    deadline = time.monotonic() + WALL_SECONDS
    output = b""
    while True:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([reading], [], [], max(0.0, left))
        if not ready:
            return output, f"it ran longer than {WALL_SECONDS:g} s"
        chunk = os.read(reading, OUTPUT_BYTES)
        output += chunk
        if not chunk:
            return output, ""
        if len(output) > OUTPUT_BYTES:
            return output[:OUTPUT_BYTES], f"it wrote more than {OUTPUT_BYTES} bytes"


def _cause(code: int, seconds: float) -> str:
    """Why a program ended, by its exit status and its processor time."""
    if code == -signal.SIGKILL and seconds < CPU_SECONDS:
        return "it closed its output before it ended"
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"it computed longer than {CPU_SECONDS} s"
    if code < 0:
        return f"it died of {signal.Signals(-code).name}"
    return f"it exited with status {code}"


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
        resource.RLIMIT_CPU: CPU_SECONDS,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 0,
        resource.RLIMIT_STACK: STACK_BYTES,
    }
    for name, most in limits.items():
        resource.setrlimit(name, (most, most))


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
