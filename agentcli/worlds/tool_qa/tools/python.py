"""python: runs untrusted programs in a process that can do nothing but compute.

What it protects from: a program cannot open, read, create or change any file, ask for
one, read the environment or /proc, use a network, start a process or a thread, signal
or trace another process, hold descriptors of its caller, sleep, or outlive its call.
Nor does its memory hold anything of the programs before it. It has limits for processor
time, wall clock, memory, stack and output. These layers lie one behind another (Linux,
x86-64 and 64-bit ARM):

    seccomp      every system call that pure computing does not need is refused
    limits       setrlimit(2): no descriptor can be opened, no byte written to a file
    privileges   no capability; a superuser becomes nobody
    environment  the server is started with an empty one, and without site-packages

Without seccomp (another system or processor) nothing is run at all.

What it does not protect from: a fault of the kernel or of the interpreter, side
channels through the processor's caches and clocks, and heat. Where Python and agentcli
lie is no secret (sys.path). Programs that read the clock or their own addresses can
tell two runs apart; hash seed and random seed are fixed.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path

from agentcli.errors import EngineError, MissingError
from agentcli.worlds.tool_qa import sandbox_server as server
from agentcli.worlds.tool_qa.tools.registry import ToolError

COMMAND = ("-S", "-s", "-P", "-B", "-X", "utf8", "-m", server.__name__)
PACKAGES = Path(__file__).parents[4]
"""The folder that holds agentcli; the server imports nothing else from there."""
START_SECONDS = 30.0
ANSWER_SECONDS = 2 * server.WALL_SECONDS + 2.0
LONGEST_PROGRAM = 2000
"""Characters."""


class Sandbox:
    """One server, started when it is first needed; it ends with this process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, program: str) -> str:
        """The output of a program; a failure is its last line, `error: ...`.

        Raises MissingError where no program can be run, EngineError when the server
        broke.
        """
        if len(program) > LONGEST_PROGRAM:
            return f"error: the program is longer than {LONGEST_PROGRAM} characters"
        if self._process is None:
            self._process = self.start()
        assert self._process.stdin is not None
        try:
            # A model may write lone surrogates, which UTF-8 cannot hold.
            data = program.encode("utf-8", "backslashreplace")
            self._process.stdin.write(server.LENGTH.pack(len(data)) + data)
            output = self._read(ANSWER_SECONDS)
        except OSError as error:
            self.close()
            raise EngineError(f"tool python: the sandbox broke: {error}") from error
        return output.decode(errors="replace").strip()

    def start(self) -> "subprocess.Popen[bytes]":
        """Starts the server and waits until it is ready.

        Raises MissingError where it does not start.
        """
        if not server.supported():
            raise MissingError(
                "no program is run on this machine: it has no seccomp; use Linux on "
                "x86-64 or 64-bit ARM"
            )
        self._process = subprocess.Popen(
            [sys.executable, *COMMAND],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            # Not our own environment, which may hold secrets.
            env={"PYTHONPATH": str(PACKAGES), "PYTHONHASHSEED": "0"},
            # A group of its own: close() kills keepers and programs with the server.
            start_new_session=True,
        )
        try:
            self._read(START_SECONDS)
        except OSError as error:
            self.close()
            raise MissingError(
                f"no program is run on this machine: the sandbox did not start: {error}"
            ) from error
        return self._process

    def close(self) -> None:
        """Ends the server, and with it whatever it runs."""
        process = self._process
        self._process = None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self, seconds: float) -> bytes:
        """One answer. Raises OSError if none comes in time."""
        deadline = time.monotonic() + seconds
        header = self._take(server.LENGTH.size, deadline)
        (length,) = server.LENGTH.unpack(header)
        return self._take(length, deadline)

    def _take(self, size: int, deadline: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        data = b""
        while len(data) < size:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([pipe], [], [], left)[0]:
                raise TimeoutError("it does not answer")
            chunk = os.read(pipe, size - len(data))
            if not chunk:
                raise BrokenPipeError("it has ended")
            data += chunk
        return data


class PythonTool:
    """A program in, its output out.

    A last expression is printed, as in an interactive Python. Answers are kept, so that
    a program that the judge has tried is not run again.
    """

    name = "python"
    description = (
        "runs a program without files and network, e.g. "
        "python[sum(n * n for n in range(10))]"
    )
    cost = 1.2

    def __init__(self) -> None:
        self._sandbox = Sandbox()
        self._answer = lru_cache(maxsize=4096)(self._sandbox.run)

    def run(self, argument: str) -> str:
        """The output. Raises ToolError, and EngineError when the sandbox broke."""
        try:
            output = self._answer(argument)
        except MissingError as error:
            raise ToolError(str(error)) from error
        if not output:
            raise ToolError("the program printed nothing")
        last = output.rsplit("\n", 1)[-1]
        # A program that prints this word itself is refused too: it cannot be told
        # apart.
        if last.startswith("error: "):
            raise ToolError(last.removeprefix("error: "))
        return output


@lru_cache
def fault_here() -> str | None:
    """Why this machine runs no program; None where it does."""
    sandbox = Sandbox()
    try:
        sandbox.start()
    except MissingError as error:
        return str(error)
    finally:
        sandbox.close()
    return None
