"""One worker process, for the event loop: sends and receives frames, notices its end.

A worker of another Python or on another machine is started by a command of the user's,
and is a process of this machine too: an ssh client for instance.

It does not use asyncio's subprocesses. A second Ctrl-C while one is being started makes
them wait forever (Python 3.11), and their data arrives one turn of the event loop late.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from agentcli.environments.engines.frames import take_frames
from agentcli.errors import EngineError
from agentcli.records.processes import search_path

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
        sent = 0 if self._outbox else self._push(frame)
        if sent < len(frame):
            if not self._outbox:
                self._loop.add_writer(self._stdin, self._flush)
            self._outbox += frame[sent:]

    @property
    def memory_mb(self) -> float:
        """MiB that the worker uses, including child processes of its engines."""
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
    environ = os.environ | {"PYTHONHASHSEED": "0"}
    # Another Python has packages of its own, and ssh passes no lifeline on.
    if not command:
        command = (*COMMAND, str(lifeline))
        environ["PYTHONPATH"] = search_path()
    return subprocess.Popen(
        command,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[lifeline],
        env=environ,
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
