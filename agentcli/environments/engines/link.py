"""The parent's end of one worker process and of those that replace it.

A Link keeps the unanswered calls in order. The process works on the first of them, so
the first is the one that pays when the process dies or says nothing for the deadline:
it fails with EngineError, and the others are sent again to a fresh process. The clock
of a call starts when it has become the first, so waiting behind a slow call costs
nothing. What the replacement no longer knows (engines, snapshots) is the pool's
business.
"""

import asyncio
from collections import deque
from typing import Any, cast

import msgspec

from agentcli import errors
from agentcli.environments.engines import frames
from agentcli.environments.engines.process import Process
from agentcli.records.settings import EnvironmentSettings

SETUP_SECONDS = 120.0
"""How long a process may take to import its world and make a first engine."""
AS_THEY_ARE = {
    "ReplayMismatchError": errors.ReplayMismatchError,
    "WriteError": errors.WriteError,
    "UsageError": errors.UsageError,
}
"""What a process reports that is not one call's EngineError: a disk that is full for
one task is full for all, and a world that cannot do what was asked cannot do it for
any.
"""


class Call:
    """A request that has not been answered yet."""

    __slots__ = ("deadline", "frame", "future", "what")

    def __init__(
        self,
        request: frames.Request,
        what: str,
        deadline: float,
        future: asyncio.Future[Any],
    ) -> None:
        self.frame = frames.encode_frame(request)
        self.what = what
        self.deadline = deadline
        self.future = future

    def fail(self, error: errors.AgentCliError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # nobody awaits the set-up of a replacement


class Link:
    """Calls in, replies out, in order, whatever happens to the process."""

    def __init__(self, settings: EnvironmentSettings, engines: int) -> None:
        self.tasks = 0
        """Tasks pinned to this worker."""
        self.seconds = 0.0
        """Wall seconds spent on requests by the processes, those killed for a hang
        included.
        """
        self.solvable = False
        """The world's engines can plan; known once the process is set up."""
        self._settings = frames.Setup(settings, engines)
        self._deadline = settings.deadline_seconds
        self._loop = asyncio.get_running_loop()
        self._calls: deque[Call] = deque()
        self._since = 0.0
        """When the first call became the first."""
        self._alarm: asyncio.TimerHandle | None = None
        self._process: Process | None = None
        """The one that is spoken to."""
        self._alive: set[Process] = set()
        """That one and those that are being killed."""
        self._setup: Call | None = None
        self._closed = False

    async def start(self) -> None:
        """Start the process. Raises what setting up the world raised: UsageError,
        MissingError, DataError, ...
        """
        await self._relaunch()

    async def call(self, request: frames.Request, what: str) -> frames.Reply:
        """Send a request and await its reply. `what` names it in errors. Raises
        EngineError and, once closed, UsageError.
        """
        if self._closed:
            raise errors.UsageError(f"{what}: the engine pool is closed")
        call = Call(request, what, self._deadline, self._loop.create_future())
        if not self._calls:
            self._since = self._loop.time()
        self._calls.append(call)
        if self._process is not None:
            self._process.write(call.frame)
            if self._alarm is None:
                self._watch()
        else:
            self._relaunch()
        return cast(frames.Reply, await call.future)

    def post(self, request: frames.Request) -> None:
        """Send a request that has no reply. Where no process is, there is none that
        would need it.
        """
        if self._process is not None:
            self._process.write(frames.encode_frame(request))

    async def close(self) -> None:
        """Fail what is unanswered, let the process close its engines, kill it if that
        takes too long.
        """
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        self._fail_all(errors.EngineError("the engine pool was closed"))
        self._process = None
        await asyncio.gather(*(process.close() for process in self._alive))

    def received(self, process: Process, payload: bytes) -> None:
        """A reply of the process, which answers the first call."""
        if process is not self._process or not self._calls:
            return
        try:
            reply = frames.decode_reply(payload)
        except msgspec.MsgspecError as error:
            reply = frames.Failed(
                "EngineError",
                f"the world answered what the protocol does not allow: {error}",
            )
        call = self._calls.popleft()
        self._since = self._loop.time()
        if call is self._setup:
            self._set_up(call, reply)
        elif isinstance(reply, frames.Failed):
            call.fail(
                AS_THEY_ARE.get(reply.kind, errors.EngineError)(
                    f"{call.what}: {reply.text}"
                )
            )
        elif not call.future.done():
            call.future.set_result(reply)
        self.seconds += reply.seconds

    def ended(self, process: Process, how: str) -> None:
        """The process is gone. One that was killed here, or closed, has been dealt with
        already.
        """
        self._alive.discard(process)
        if process is self._process:
            self._process = None
            if self._calls:
                self._blame(how)

    def _relaunch(self) -> asyncio.Future[Any]:
        """Start a process; the future is done when its world is set up."""
        future = self._loop.create_future()
        self._setup = Call(
            self._settings, "starting an engine process", SETUP_SECONDS, future
        )
        self._calls.appendleft(self._setup)
        try:
            self._process = Process(self.received, self.ended)
        except OSError as error:
            self._fail_all(errors.EngineError(f"starting an engine process: {error}"))
            return future
        self._alive.add(self._process)
        for call in self._calls:
            self._process.write(call.frame)
        self._since = self._loop.time()
        self._watch()
        return future

    def _set_up(self, setup: Call, reply: frames.Reply) -> None:
        """The answer to Setup. Without a world no call can be answered: all fail for
        the reason given.
        """
        self._setup = None
        if isinstance(reply, frames.Failed):
            process, self._process = self._process, None
            if process is not None:
                process.kill()
            error = getattr(errors, reply.kind, errors.EngineError)(reply.text)
            setup.fail(error)
            self._fail_all(error)
        elif isinstance(reply, frames.Ready):
            self.solvable = reply.solvable
            if not setup.future.done():
                setup.future.set_result(None)
        self._watch()

    def _watch(self) -> None:
        """Look again when the first call may be overdue."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._process is not None and self._calls:
            self._alarm = self._loop.call_at(
                self._since + self._calls[0].deadline, self._judge
            )

    def _judge(self) -> None:
        """Kill the process if its first call is overdue. What it has answered while the
        event loop was busy, perhaps for longer than the deadline, has been read: a turn
        of the loop reads first and then rings alarms.
        """
        if (
            self._process is None
            or not self._calls
            or self._loop.time() < self._since + self._calls[0].deadline
        ):
            self._watch()
            return
        process, self._process = self._process, None
        process.kill()
        deadline = self._calls[0].deadline
        self.seconds += deadline
        self._blame(
            f"no answer within {deadline:g} s, the engine process was "
            f"killed{process.last_words()}"
        )

    def _blame(self, how: str) -> None:
        """The first call fails, the others go to the next process; when it was the
        set-up, all fail.
        """
        call = self._calls.popleft()
        error = errors.EngineError(f"{call.what}: {how}")
        call.fail(error)
        if call is self._setup:
            self._fail_all(error)
        elif self._calls:
            self._relaunch()

    def _fail_all(self, error: errors.AgentCliError) -> None:
        while self._calls:
            self._calls.popleft().fail(type(error)(str(error)))
