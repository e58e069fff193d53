"""The parent's connection to one worker process, and to its replacements.

A Link keeps the unanswered calls in order. The process works on the first call, so that
call is blamed if the process dies, or does not answer before the deadline: it fails
with EngineError, and the other calls are sent again to a new process. The clock of a
call starts when it becomes the first, so time spent waiting behind a slow call does not
count. The new process does not have the old engines and snapshots; the pool deals with
that.
"""

import asyncio
import shlex
from collections import deque
from dataclasses import dataclass
from typing import Any

import msgspec

from agentcli import errors
from agentcli.environments.engines import frames
from agentcli.environments.engines.process import Process
from agentcli.environments.protocol import WORLD_FAILED
from agentcli.records.settings import EnvironmentSettings
from agentcli.version import __version__

SETUP_SECONDS = 120.0
"""How long a process may take to import its world and make a first engine."""
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
    future: asyncio.Future[Any]

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
        self._longest = frames.longest_reply(settings)
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
        """MiB that the process uses, including child processes of its engines."""
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
        call = self._pending(request, label, self._deadline)
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

    def _pending(
        self,
        request: frames.Request,
        label: str,
        deadline: float,
    ) -> PendingCall:
        future = self._loop.create_future()
        return PendingCall(frames.encode_frame(request), label, deadline, future)

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
        if process is not self._process or not self._calls:
            return
        reply: frames.Reply
        try:
            reply = frames.decode_reply(payload)
        except msgspec.MsgspecError as error:
            fault = f"its answer is not what the protocol allows: {error}"
            reply = frames.Failed("EngineError", fault)
        call = self._calls.popleft()
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
        setup = self._pending(self._settings, self._starting, SETUP_SECONDS)
        self._setup = setup
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
        if self._loop.time() < self._since + deadline:
            self._watch()
            return
        self._process = None
        process.kill()
        self.seconds += deadline
        self._blame(
            f"no answer within {deadline:g} s, the engine process was "
            f"killed{process.last_words()}"
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
            self._calls.popleft().fail(type(error)(str(error)))
