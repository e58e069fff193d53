"""The parent's connection to one worker process, and to its replacements.

A Link keeps the unanswered calls in order. The process works on the first call, so that
call is blamed if the process dies, or does not answer before the deadline: it fails
with EngineError, and the other calls are sent again to a new process. The clock of a
call starts when it becomes the first, so time spent waiting behind a slow call does not
count. The new process does not have the old engines and snapshots; the pool deals with
that.

A Process is one worker, for the event loop: it sends and receives frames, and notices
the worker's end. A worker of another Python or on another machine is started by a
command of the user's, and is a process of this machine too: an ssh client for instance.

It does not use asyncio's subprocesses. A second Ctrl-C while one is being started makes
them wait forever (Python 3.11), and their data arrives one turn of the event loop late.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from agentcli import errors
from agentcli.environments.engines import frames
from agentcli.environments.engines.frames import take_frames
from agentcli.environments.protocol import WORLD_FAILED
from agentcli.errors import EngineError
from agentcli.records.pictures import LARGEST_BYTES, MOST_PICTURES
from agentcli.records.processes import search_path
from agentcli.records.settings import EnvironmentSettings
from agentcli.version import __version__

CLOSE_SECONDS = 2.0
"""How long a process may take to close its engines before it is killed."""
STDERR_BYTES = 2000
"""Bytes kept from the end of a process's stderr for error messages."""
SHOWN_LINES = 5
"""Maximum number of stderr lines that an error message quotes."""
READ_BYTES = 1 << 18
"""More than a pipe holds: one read takes everything that a dead process left."""

SESSION, PAGES = 3, 21
"""Places in /proc/PID/stat after the name: its session, and its resident pages."""

# With -P the current folder is not on the path, where a file could hide a module.
COMMAND = (sys.executable, "-P", "-m", "agentcli.environments.engines.worker")


class Process:
    """A worker process, which the constructor starts. Raises OSError.

    `command` starts it; empty, this Python does. An answer has `longest` bytes at most.
    `received(process, payload)` is called for each frame that the worker sends;
    `ended(process, how)` once after the last frame, when the worker is gone: `how` is
    MemoryError if there was no memory here to read what it sent. When the parent
    process ends, for whatever reason, the kernel kills the worker and the child
    processes of its engines. A worker of a command ends when its stdin closes.
    """

    def __init__(
        self,
        command: Sequence[str],
        longest: int,
        received: Callable[["Process", bytes], None],
        ended: Callable[["Process", str | MemoryError], None],
    ) -> None:
        self._received = received
        self._ended = ended
        self._longest = longest
        self._loop = asyncio.get_running_loop()
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._stderr_end = b""
        self._gone: asyncio.Future[None] = self._loop.create_future()
        # Python's descriptors are not inherited (PEP 446), so no other worker keeps
        # this lifeline open.
        theirs, self._lifeline = os.pipe()
        try:
            self._popen = _start(command, theirs)
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(theirs)
        self._stdin = _not_blocking(self._popen.stdin)
        self._stdout = _not_blocking(self._popen.stdout)
        self._stderr = _not_blocking(self._popen.stderr)
        self._loop.add_reader(self._stdout, self._attempt, self._read)
        self._loop.add_reader(self._stderr, self._attempt, self._listen)

    def write(self, frame: bytes) -> None:
        """Sends a frame, as much as the pipe takes immediately and the rest later.

        It does not wait for the event loop, since a busy loop would use up the time
        until the deadline.
        """
        # A frame must not overtake what still waits.
        sent = 0 if self._outbox else self._push(frame)
        if sent < len(frame):
            if not self._outbox:
                self._loop.add_writer(self._stdin, self._flush)
            self._outbox += frame[sent:]

    @property
    def memory_mb(self) -> float:
        return resident_mb(self._popen.pid)

    def kill(self) -> None:
        """Kills the worker and its children.

        The signal reaches none on another machine; those end when their stdin closes.
        """
        if not self._gone.done():
            self._close_stdin()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Closes the worker's stdin, which ends it; kills it after CLOSE_SECONDS."""
        self._close_stdin()
        await asyncio.wait([self._gone], timeout=CLOSE_SECONDS)
        self.kill()
        # A worker that no signal reaches, and that is stuck, holds its pipes open.
        await asyncio.wait([self._gone], timeout=CLOSE_SECONDS)
        if not self._gone.done():
            self._bury()

    def last_words(self) -> str:
        """The most useful lines of the worker's stderr, as part of a one-line message.

        These are the first lines of a faulthandler report, or else the last lines.
        """
        text = self._stderr_end.decode(errors="replace")
        _, fatal, report = text.rpartition("Fatal Python error")
        lines = [line.strip() for line in (fatal + report).splitlines()]
        lines = [line for line in lines if line]
        shown = lines[:SHOWN_LINES] if fatal else lines[-SHOWN_LINES:]
        return f"; its last words: {' | '.join(shown)}" if shown else ""

    def _attempt(self, read: Callable[[], None]) -> None:
        """Reads; ends the worker if memory runs out, or asyncio would retry for ever."""
        try:
            read()
        except MemoryError as error:
            self._bury(error)

    def _read(self) -> None:
        data = _available(self._stdout)
        self._inbox += data or b""
        try:
            payloads = take_frames(self._inbox, self._longest)
        except EngineError as error:
            self._bury(str(error))
            return
        for payload in payloads:
            self._received(self, payload)
        # Only the worker has the other end open, so the worker has ended.
        if data == b"":
            self._bury()

    def _listen(self) -> None:
        data = _available(self._stderr)
        self._stderr_end = (self._stderr_end + (data or b""))[-STDERR_BYTES:]
        # Neither the worker nor a child of its engines will write any more.
        if data == b"":
            self._loop.remove_reader(self._stderr)

    def _flush(self) -> None:
        del self._outbox[: self._push(self._outbox)]
        if not self._outbox:
            self._loop.remove_writer(self._stdin)

    def _push(self, data: bytes | bytearray) -> int:
        """Writes what the pipe takes now; returns the number of bytes."""
        try:
            return os.write(self._stdin.fileno(), data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            # No reader is left; `_read` notices that the worker has ended.
            return len(data)

    def _bury(self, fault: str | MemoryError | None = None) -> None:
        # Children of its engines may still be running: kill them too.
        self.kill()
        code = self._popen.wait()
        # What it wrote as it died may not have been read yet, and `_end` quotes it.
        with contextlib.suppress(MemoryError):
            self._listen()
        self._loop.remove_reader(self._stdout)
        self._loop.remove_reader(self._stderr)
        self._close_stdin()
        self._stdout.close()
        self._stderr.close()
        os.close(self._lifeline)
        self._gone.set_result(None)
        self._ended(self, fault or self._end(code))

    def _end(self, code: int) -> str:
        how = f"exited with status {code}"
        if code < 0:
            how = f"died of {signal.Signals(-code).name}"
        unexplained = " (memory ran out?)" if code == -signal.SIGKILL else ""
        return f"the engine process {how}{self.last_words() or unexplained}"

    def _close_stdin(self) -> None:
        if not self._stdin.closed:
            self._loop.remove_writer(self._stdin)
            self._stdin.close()


def _start(command: Sequence[str], lifeline: int) -> "subprocess.Popen[bytes]":
    # The order of sets follows from hashes, and a replay may run in another worker.
    environ = os.environ | {"PYTHONHASHSEED": "0"}
    # Another Python has packages of its own, and ssh passes no lifeline on.
    if not command:
        command = (*COMMAND, str(lifeline))
        environ["PYTHONPATH"] = search_path()
    return subprocess.Popen(
        command,
        # The descriptors are read and written themselves, past any buffer.
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[lifeline],
        env=environ,
        # killpg then reaches the children of engines, and resident_mb finds them.
        start_new_session=True,
    )


def resident_mb(session: int) -> float:
    """MiB that the processes of a session use; 0 if there is no /proc."""
    pages = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = file.read_text()
        except OSError:
            # The process has just ended.
            continue
        # The name in brackets may hold spaces and brackets itself (proc(5)).
        fields = text.rpartition(")")[2].split()
        if int(fields[SESSION]) == session:
            pages += int(fields[PAGES])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _not_blocking(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    os.set_blocking(pipe.fileno(), False)
    return pipe


def _available(pipe: IO[bytes]) -> bytes | None:
    """The available bytes: empty at the end of the file, None if there are none yet."""
    try:
        return os.read(pipe.fileno(), READ_BYTES)
    except BlockingIOError:
        return None


SETUP_SECONDS = 120.0
"""How long a process may take to import its world and make a first engine; or as long
as a call may take, where that is longer.
"""
STARTING = "starting an engine process"
AS_THEY_ARE = (
    errors.MissingError,
    errors.ReplayMismatchError,
    errors.WriteError,
    errors.UsageError,
)
"""Errors of a process that concern more than one call, so they are not reported as
EngineError. A full disk, a missing library, or something that the world cannot do
affects every task.
"""


class ProcessEndedError(errors.EngineError):
    """The process died during a call, or was killed because it hung."""


@dataclass(eq=False, slots=True)
class PendingCall:
    """A request that has not been answered yet."""

    frame: bytes
    label: str
    """Names the call in errors."""
    deadline: float
    """Seconds that the call may take, counted from when it becomes the first."""
    future: asyncio.Future[Any] = field(default_factory=asyncio.Future)

    def succeed(self, result: Any) -> None:
        """Passes the reply to the caller, if it is still waiting."""
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: errors.AgentCliError | MemoryError) -> None:
        """Raises the error where the call is awaited."""
        if not self.future.done():
            self.future.set_exception(error)
            # The set-up of a replacement is never awaited, and asyncio would complain.
            self.future.exception()


class Link:
    """Takes calls and returns replies in order, whatever happens to the process."""

    def __init__(self, settings: EnvironmentSettings, engines: int) -> None:
        self.tasks = 0
        """Tasks pinned to this worker."""
        self.seconds = 0.0
        """Wall seconds that processes spent on requests, including processes that were
        killed because they hung.
        """
        self.solvable = False
        """Whether the world's engines can plan; known once the process is set up."""
        self._settings = frames.Setup(__version__, settings, engines)
        self._command = settings.worker
        self._starting = STARTING
        """Names the set-up in errors."""
        if settings.worker:
            self._starting = f"environment.worker: {shlex.join(settings.worker)}"
        self._longest = settings.most_text_bytes + MOST_PICTURES * LARGEST_BYTES
        """Most bytes of a reply: of its text and actions, and of its pictures."""
        self._deadline = settings.deadline_seconds
        self._loop = asyncio.get_running_loop()
        self._calls: deque[PendingCall] = deque()
        self._since = 0.0
        """When the first call moved to the front."""
        self._alarm: asyncio.TimerHandle | None = None
        self._process: Process | None = None
        """The process that receives requests."""
        self._alive: set[Process] = set()
        """The current process, and those that are being killed."""
        self._setup: PendingCall | None = None
        self._closed = False

    @property
    def memory_mb(self) -> float:
        return 0.0 if self._process is None else self._process.memory_mb

    async def start(self) -> None:
        """Starts the process. Raises what the set-up of the world raised."""
        await self._relaunch()

    async def call(self, request: frames.Request, label: str) -> frames.Reply:
        """Sends a request and awaits its reply. `label` names it in errors.

        Raises EngineError, ProcessEndedError if the process ended during the request,
        and UsageError after `close`.
        """
        if self._closed:
            raise errors.UsageError(f"{label}: the engine pool is closed")
        call = PendingCall(frames.encode_frame(request), label, self._deadline)
        if not self._calls:
            self._since = self._loop.time()
        self._calls.append(call)
        if self._process is None:
            self._relaunch()
        else:
            self._process.write(call.frame)
            if self._alarm is None:
                self._watch()
        reply: frames.Reply = await call.future
        return reply

    def post(self, request: frames.Request) -> None:
        """Sends a request that has no reply."""
        # Without a process there is no recipient.
        if self._process is not None:
            self._process.write(frames.encode_frame(request))

    async def close(self) -> None:
        """Fails all unanswered calls, and lets the process close its engines.

        The process is killed if that takes too long.
        """
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        self._fail_all(errors.EngineError("the engine pool was closed"))
        self._process = None
        await asyncio.gather(*(process.close() for process in self._alive))

    def received(self, process: Process, payload: bytes) -> None:
        """Handles a reply from the process: it answers the first call."""
        # A process that is being killed may still have answered; its calls are with the
        # next one, or have failed.
        if process is not self._process or not self._calls:
            return
        reply: frames.Reply
        try:
            reply = frames.decode_reply(payload)
        except msgspec.MsgspecError as error:
            fault = f"its answer is not what the protocol allows: {error}"
            reply = frames.Failed("EngineError", fault)
        call = self._calls.popleft()
        # The alarm stays as it is: if it comes too early, `_judge` sets it again.
        self._since = self._loop.time()
        if call is self._setup:
            self._set_up(call, reply)
        elif isinstance(reply, frames.Failed):
            kind = errors.error_class(reply.kind)
            if kind not in AS_THEY_ARE:
                kind = errors.EngineError
            fault = reply.text
            if issubclass(kind, errors.EngineError):
                fault = f"{WORLD_FAILED}{fault}"
            call.fail(kind(f"{call.label}: {fault}"))
        else:
            call.succeed(reply)
        self.seconds += reply.seconds

    def ended(self, process: Process, how: str | MemoryError) -> None:
        """Handles the end of the process."""
        self._alive.discard(process)
        # A process that was killed here, or closed, has been handled already.
        if process is not self._process:
            return
        self._process = None
        # Another process would be no better off.
        if isinstance(how, MemoryError):
            self._fail_all(how)
        elif self._calls:
            self._blame(how)

    def _relaunch(self) -> asyncio.Future[Any]:
        """Starts a process; the future is done once its world is set up."""
        request = frames.encode_frame(self._settings)
        seconds = max(SETUP_SECONDS, self._deadline)
        setup = PendingCall(request, self._starting, seconds)
        self._setup = setup
        # Answers carry no number, so the order here is the order of the frames below.
        self._calls.appendleft(setup)
        try:
            self._process = Process(
                self._command, self._longest, self.received, self.ended
            )
        except OSError as error:
            kind = errors.MissingError if self._command else errors.EngineError
            self._fail_all(kind(f"{self._starting}: {error}"))
            return setup.future
        except MemoryError as error:
            self._fail_all(error)
            return setup.future
        self._alive.add(self._process)
        for call in self._calls:
            self._process.write(call.frame)
        self._since = self._loop.time()
        self._watch()
        return setup.future

    def _set_up(self, setup: PendingCall, reply: frames.Reply) -> None:
        """Handles the answer to Setup."""
        self._setup = None
        if isinstance(reply, frames.Ready):
            self.solvable = reply.solvable
            setup.succeed(None)
        else:
            if self._process is not None:
                self._process.kill()
                self._process = None
            error = self._refusal(reply)
            setup.fail(error)
            # Without a world no call can be answered.
            self._fail_all(error)
        self._watch()

    def _refusal(self, reply: frames.Reply) -> errors.AgentCliError:
        """The error of a set-up that failed, with the user's command, if there is one."""
        place = f"{self._starting}: " if self._command else ""
        if not isinstance(reply, frames.Failed):
            name = type(reply).__name__
            return errors.EngineError(f"{place}it answered {name} to Setup")
        return errors.error_class(reply.kind)(f"{place}{reply.text}")

    def _watch(self) -> None:
        """Sets the alarm for the time when the first call would be overdue."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._process is not None and self._calls:
            due = self._since + self._calls[0].deadline
            self._alarm = self._loop.call_at(due, self._judge)

    def _judge(self) -> None:
        """Kills the process if its first call is overdue.

        Replies that arrived while the event loop was busy, perhaps for longer than the
        deadline, have been read by now: the loop reads first and then runs timers.
        """
        process = self._process
        if process is None or not self._calls:
            self._watch()
            return
        deadline = self._calls[0].deadline
        # Replies do not move the alarm, which would take a timer for each: it moves
        # here.
        if self._loop.time() < self._since + deadline:
            self._watch()
            return
        self._process = None
        process.kill()
        self.seconds += deadline
        self._blame(
            f"no answer within {deadline:g} s (environment.deadline_seconds can give "
            f"it more), the engine process was killed{process.last_words()}"
        )

    def _blame(self, how: str) -> None:
        """Fails the first call, and sends the other calls to the next process."""
        call = self._calls.popleft()
        fault = f"{call.label}: {how}"
        if call is self._setup:
            # The set-up of the next process would fail too.
            error = errors.EngineError(fault)
            call.fail(error)
            self._fail_all(error)
            return
        call.fail(ProcessEndedError(fault))
        if self._calls:
            self._relaunch()

    def _fail_all(self, error: errors.AgentCliError | MemoryError) -> None:
        while self._calls:
            # An error of its own for each: callers that raise one exception would mix
            # their tracebacks in it.
            self._calls.popleft().fail(type(error)(str(error)))
