"""One engine process: `python -m agentcli.environments.engines.worker`.

The pool starts it, or a command of the user's (environment.worker), and only the pool
talks to it. It keeps the live engines and snapshots of the
tasks pinned to it, and answers one request at a time. It never decides what happens to
a task: a call that raises is reported and its engine discarded; the pool notices
crashes and hangs.

It ends when its stdin closes, and kills the child processes of its engines. It cannot
outlive its parent: argument 1 is the lifeline, a file descriptor whose closing makes
the kernel kill it. Without one, a thread ends it soon after its stdin has closed.
Requests and replies use private copies of stdin and stdout; file descriptor 1 then
points at stderr, so an engine may print anything.
"""

import atexit
import contextlib
import faulthandler
import fcntl
import gc
import os
import select
import signal
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeVar

import msgspec

from agentcli import errors
from agentcli.environments.engines import frames
from agentcli.environments.protocol import (
    Closable,
    Engine,
    Forkable,
    Judging,
    LostEngineError,
    NoEngineLeftError,
    Observation,
    Retracing,
    Solvable,
    Start,
    World,
)
from agentcli.environments.registry import make_engine, make_world
from agentcli.records.free_memory import lacks_memory, shortage
from agentcli.records.pictures import Picture, refuse_faulty
from agentcli.records.settings import EnvironmentSettings
from agentcli.registry import own_line
from agentcli.version import __version__

ReportT = TypeVar("ReportT", Start, Observation)

FAREWELL_SECONDS = 2.0
"""How long engines may take to close when stdin has closed and there is no lifeline."""

LONGEST_FAULT = 4000
"""Most characters of an error message; a world may put any text into one."""


@dataclass(eq=False, slots=True)
class Slot:
    """A live engine and the task that it plays."""

    engine: Engine
    forkable: Forkable | None
    """The engine again, if it can fork."""
    task: str
    at: int | None = None
    """The state the engine is in now."""
    snapshots: dict[int, tuple[Any, Observation]] = field(default_factory=dict)
    """States that this engine can restore, with the snapshot and the observation of
    each. A snapshot of None: the engine can only be in this state now.
    """


class LostStateError(Exception):
    """This process does not have the state, and got no history to replay."""


class Host:
    """The engines of this process, at most `limit`.

    When all are in use, the least recently used one is reused.
    """

    def __init__(self, world: World, settings: EnvironmentSettings, limit: int) -> None:
        name = settings.name
        self._world = world
        self._name = name
        self._limit = limit
        self._most_bytes = settings.most_text_bytes
        # One is made at once, so that a missing library is reported before any task.
        self._free = [make_engine(world, name)]
        self._live: OrderedDict[Slot, None] = OrderedDict()
        self._slot_of: dict[int, Slot] = {}
        self._busy: Slot | None = None
        """The slot that the current request uses."""
        self._replayed = 0
        """Steps that the current request has replayed."""
        self._answers: dict[type, Callable[[Any], frames.Reply | None]] = {
            frames.Open: self._open,
            frames.Act: self._act,
            frames.Consult: self._consult,
            frames.Release: self._release,
        }

    @property
    def solvable(self) -> bool:
        return isinstance(self._free[0], Solvable)

    def serve(self, request: frames.Request) -> bytes | None:
        """The frame that answers `request`.

        An engine that raises is discarded and reported as Failed. Raises MemoryError
        and LostEngineError, which end the process: what its engines share may be half
        modified, or lost.
        """
        began = time.perf_counter()
        self._busy = None
        self._replayed = 0
        try:
            reply = self._answers[type(request)](request)
            frame = _answer_frame(reply, began)
            _refuse_long(reply, frame, self._most_bytes)
            return frame
        except (MemoryError, LostEngineError):
            raise
        except LostStateError:
            return _answer_frame(frames.Lost(), began)
        except (Exception, SystemExit) as error:  # a game may call sys.exit
            if self._busy is not None:
                self._drop(self._busy)
                _close(self._busy.engine)
            return _answer_frame(failure(error), began)

    def close(self) -> None:
        """Closes all engines."""
        for slot in self._live:
            _close(slot.engine)
        for engine in self._free:
            _close(engine)

    def _open(self, request: frames.Open) -> frames.Reply:
        slot = self._acquire(request.task.id)
        start = _returned(Start, "start", slot.engine.start(request.task))
        exact = self._settle(slot, request.state, start.observation)
        return frames.Opened(start, exact)

    def _act(self, request: frames.Act) -> frames.Reply:
        slot = self._reach(request.state, request.history)
        given = slot.engine.step(request.action)
        observation = _returned(Observation, "step", given)
        snapshot, _ = slot.snapshots[request.state]
        # The engine has left a state that it cannot restore.
        if snapshot is None:
            del slot.snapshots[request.state]
            del self._slot_of[request.state]
        exact = self._settle(slot, request.result, observation)
        return frames.Acted(observation, exact, self._replayed)

    def _consult(self, request: frames.Consult) -> frames.Reply:
        engine = self._reach(request.state, request.history).engine
        # A UsageError ends the command: it would fail for every task of this world.
        if request.argument is None:
            if not isinstance(engine, Solvable):
                raise errors.UsageError(
                    f"{self._name} has no expert: its engine cannot plan; choose "
                    "another --policy"
                )
            return frames.Consulted(list(engine.plan()), self._replayed)
        if not isinstance(engine, Judging):
            raise errors.UsageError(
                f"{self._name} has no judge: its engine scores no tools; choose "
                "another judge with --set rollout.judge.kind=KIND"
            )
        return frames.Consulted(engine.judge(request.argument), self._replayed)

    def _reach(self, state: int, history: frames.History | None) -> Slot:
        """A slot whose engine is in `state`.

        Raises LostStateError if the state is lost and there is no history, and
        ReplayMismatchError if the restored copy differs from what was observed.
        """
        slot = self._slot_of.get(state)
        if slot is None:
            if history is None:
                raise LostStateError
            return self._rebuild(state, history)
        self._busy = slot
        self._live.move_to_end(slot)
        if slot.at != state:
            # Without a snapshot a state is known only while its engine is in it.
            assert slot.forkable is not None
            snapshot, observed = slot.snapshots[state]
            copy = slot.forkable.restore(snapshot)
            _check_copy(_returned(Observation, "restore", copy), observed)
            slot.at = state
        return slot

    def _rebuild(self, state: int, history: frames.History) -> Slot:
        """Replays a history in another engine.

        Raises ReplayMismatchError if any observation differs.
        """
        slot = self._acquire(history.task.id)
        start = _returned(Start, "start", slot.engine.start(history.task))
        observation = start.observation
        _check_text(history, 0, observation.text)
        brief = slot.engine if isinstance(slot.engine, Retracing) else None
        for index, action in enumerate(history.actions, start=1):
            # The last observation is kept with the state, so it must be whole.
            if brief and index < len(history.actions):
                text = brief.retrace(action)
            else:
                given = slot.engine.step(action)
                observation = _returned(Observation, "step", given)
                text = observation.text
            _check_text(history, index, text)
            self._replayed += 1
        if observation.state != history.key:
            raise errors.ReplayMismatchError(
                f"replayed state key is {observation.state!r}, recorded was "
                f"{history.key!r}"
            )
        self._settle(slot, state, observation)
        return slot

    def _settle(self, slot: Slot, state: int, observation: Observation) -> bool:
        """Records that the engine is in `state`; returns whether it made a snapshot.

        Raises EngineError for unusable pictures.
        """
        refuse_faulty(observation.pictures)
        snapshot = None if slot.forkable is None else slot.forkable.snapshot()
        slot.at = state
        slot.snapshots[state] = snapshot, observation
        self._slot_of[state] = slot
        return snapshot is not None

    def _acquire(self, task: str) -> Slot:
        engine = self._vacant()
        if engine is None:
            # That of the least recently used slot.
            oldest = next(iter(self._live))
            self._drop(oldest)
            engine = oldest.engine
        forkable = engine if isinstance(engine, Forkable) else None
        slot = Slot(engine, forkable, task)
        self._busy = slot
        self._live[slot] = None
        return slot

    def _vacant(self) -> Engine | None:
        """A free or new engine; None at the limit of this process or of the world."""
        if self._free:
            return self._free.pop()
        if len(self._live) >= self._limit:
            return None
        try:
            return make_engine(self._world, self._name)
        except NoEngineLeftError:
            if not self._live:
                raise
            return None

    def _drop(self, slot: Slot) -> None:
        del self._live[slot]
        for state in slot.snapshots:
            del self._slot_of[state]

    def _release(self, request: frames.Release) -> None:
        for slot in [slot for slot in self._live if slot.task == request.task]:
            self._drop(slot)
            self._free.append(slot.engine)


def _answer_frame(reply: frames.Reply | None, began: float) -> bytes | None:
    if reply is None:
        return None
    reply.seconds = time.perf_counter() - began
    return frames.encode_frame(reply)


def failure(error: BaseException) -> frames.Failed:
    """An exception as a message."""
    kind = type(error).__name__
    if isinstance(error, errors.AgentCliError):
        return frames.Failed(kind, _cut(str(error)))
    if lacks_memory(error):
        return frames.Failed("EngineError", shortage())
    # The pool knows only agentcli's errors; the text names the class of any other.
    line = own_line(error)
    place = f"{line}: " if line else ""
    return frames.Failed("EngineError", _cut(f"{place}{kind}: {error}"))


def _returned(kind: type[ReportT], method: str, given: object) -> ReportT:
    """What a method of an engine returned. Raises EngineError if it is no `kind`."""
    if isinstance(given, kind):
        return given
    name = "None" if given is None else type(given).__name__
    raise errors.EngineError(
        f"its {method}() returned {name}; let it return {kind.__name__}(...)"
    )


def _refuse_long(reply: frames.Reply | None, frame: bytes | None, most: int) -> None:
    """Raises EngineError if a reply, without its pictures, is longer than allowed."""
    pictures: tuple[Picture, ...] = ()
    if isinstance(reply, frames.Opened):
        pictures = reply.start.observation.pictures
    elif isinstance(reply, frames.Acted):
        pictures = reply.observation.pictures
    size = len(frame or b"") - sum(len(picture.png) for picture in pictures)
    if size > most:
        raise errors.EngineError(
            f"its text and actions have {size} bytes, more than {most}; allow "
            "more with --set environment.most_text_bytes=N"
        )


def _cut(fault: str) -> str:
    """The text of an error, without the middle of a long one."""
    if len(fault) <= LONGEST_FAULT:
        return fault
    half = LONGEST_FAULT // 2
    return f"{fault[:half]}...{fault[-half:]}"


def _check_copy(now: Observation, then: Observation) -> None:
    """Raises ReplayMismatchError if a restored copy shows something else than before."""
    for name in Observation.__struct_fields__:
        shown = getattr(now, name)
        recorded = getattr(then, name)
        if shown != recorded:
            raise errors.ReplayMismatchError(
                f"{name} of the restored copy is {shown!r}, recorded was {recorded!r}"
            )


def _check_text(history: frames.History, index: int, text: str) -> None:
    """Raises ReplayMismatchError if a replay shows another text than was recorded."""
    recorded = history.observations[index]
    if text != recorded:
        raise errors.ReplayMismatchError(
            f"replayed observation {index} is {text!r}, recorded was {recorded!r}"
        )


def _close(engine: Engine) -> None:
    # The engine is discarded: whatever it raises does not concern the caller.
    if isinstance(engine, Closable):
        with contextlib.suppress(Exception):
            engine.close()


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Buffered copies of stdin and stdout, hidden from engines and child processes."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    # An engine that reads stdin would take requests; null ends at once.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    # What an engine prints would break the frames.
    os.dup2(2, 1)
    return requests, replies


def _read_frames(stream: BinaryIO) -> Iterator[bytes]:
    while len(header := stream.read(frames.HEADER.size)) == frames.HEADER.size:
        (length,) = frames.HEADER.unpack(header)
        yield stream.read(length)


def _hang_on(lifeline: int) -> None:
    """Lets the kernel kill this process and its engines when `lifeline` closes.

    Nothing is ever written to it (fcntl(2): F_SETOWN, F_SETSIG, O_ASYNC). The kernel is
    needed because a process that is stopped, or stuck in C code, cannot end itself.
    """
    # A negative number names a group (fcntl(2)), so engines' children get it too.
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    poller = select.poll()
    poller.register(lifeline)
    # It was already closed, so no signal will come.
    if poller.poll(0):
        os._exit(1)


def _end_with(requests: BinaryIO) -> None:
    """Ends this process soon after its requests end, whatever its engines do then.

    Not even an engine that hangs outlives the other end of an ssh connection.
    """
    poller = select.poll()
    # POLLIN would be set by every request. A closed pipe reports POLLHUP unasked.
    poller.register(requests, select.POLLRDHUP)
    poller.poll()
    time.sleep(FAREWELL_SECONDS)
    os.killpg(0, signal.SIGKILL)


def _end_group(is_whole: bool) -> None:
    """Kills the child processes of the engines, and this process.

    `is_whole`: the shell of the command that started it is in its group, and ends too.
    """
    # There may be no parent left to do this.
    if is_whole or os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


def _set_up(payload: bytes) -> tuple[Host | None, bytes]:
    """The host that Setup requests, and the frame that answers Setup."""
    try:
        setup = _read_setup(payload)
        world = make_world(setup.settings)
        host = Host(world, setup.settings, setup.engines)
        return host, frames.encode_frame(frames.Ready(host.solvable))
    except (Exception, SystemExit) as error:
        # A module of the user's may call sys.exit when it is imported.
        return None, frames.encode_frame(failure(error))


def _read_setup(payload: bytes) -> frames.Setup:
    """The first message. Raises MissingError where another release has sent it."""
    try:
        setup = msgspec.msgpack.decode(payload, type=frames.Setup)
        if setup.release == __version__:
            return setup
        sign = f"this is {setup.release}"
    except msgspec.DecodeError as error:
        sign = f"cannot read the settings: {error}"
    raise errors.MissingError(
        f"the worker is release {__version__}, and {sign}; install the same release on "
        "both sides"
    )


def _hash_alike() -> None:
    """Starts this process anew unless hashes are the same in all workers.

    The order of sets depends on them. A command in between may not pass variables on.
    """
    if os.environ.get("PYTHONHASHSEED") != "0":
        # sys.argv lacks the options of the interpreter, -m among them.
        words = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, words, os.environ | {"PYTHONHASHSEED": "0"})


def main() -> int:
    """Serves requests until stdin closes.

    The exit status is 1 if the world cannot be set up.
    """
    _hash_alike()
    lifeline = sys.argv[1:]
    if lifeline:
        _hang_on(int(lifeline[0]))
    # Registered first, so it runs last: libraries have cleaned up by then.
    atexit.register(_end_group, is_whole=not lifeline)
    # The parent decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, replies = _private_pipes()
    if not lifeline:
        threading.Thread(target=_end_with, args=(requests,), daemon=True).start()
    # A crash of C code then leaves a report that the parent can quote.
    faulthandler.enable(all_threads=False)
    inbox = _read_frames(requests)
    host, answer = _set_up(next(inbox, b""))
    # Objects imported for the world will never be garbage.
    gc.collect()
    gc.freeze()
    with contextlib.suppress(BrokenPipeError):
        replies.write(answer)
        replies.flush()
        if host is None:
            return 1
        for payload in inbox:
            try:
                frame = host.serve(frames.decode_request(payload))
            except (MemoryError, LostEngineError) as error:
                # The parent quotes it in an error of one line.
                print(str(error) or type(error).__name__, file=sys.stderr)
                return 1
            if frame is not None:
                replies.write(frame)
                replies.flush()
    if host is not None:
        host.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
