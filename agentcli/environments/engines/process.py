"""One worker process as the event loop sees it: frames both ways, last words, its end.

asyncio's own subprocesses are not used: a second Ctrl-C while one is being started
leaves them waiting for ever (Python 3.11), and what they have read arrives a turn of
the event loop late.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from agentcli.environments.engines.frames import take_frames

CLOSE_SECONDS = 2.0
"""How long a process may take to close its engines before it is killed."""
STDERR_BYTES = 2000
"""How much of the end of a process's stderr is kept for error messages."""
SHOWN_LINES = 5
"""Lines of its stderr that an error message quotes."""
READ_BYTES = 1 << 18
"""More than a pipe holds: one read takes all that a dead process has left."""

SESSION, PAGES = 3, 21
"""Places in /proc/PID/stat after the name: its session, and its resident pages."""

COMMAND = (sys.executable, "-P", "-m", "agentcli.environments.engines.worker")


class Process:
    """Starts a worker. Raises OSError.

    `received(process, payload)` is called with each frame that it sends,
    `ended(process, how)` once, after all frames, when it is gone. When this process
    ends, however it ends, the kernel kills the worker and what its engines run.
    """

    def __init__(
        self,
        received: Callable[["Process", bytes], None],
        ended: Callable[["Process", str], None],
    ) -> None:
        self._received = received
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._stderr_end = b""
        self._gone: asyncio.Future[None] = self._loop.create_future()
        theirs, self._lifeline = os.pipe()
        try:
            self._popen = _start(theirs)
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(theirs)
        self._stdin = _not_blocking(self._popen.stdin)
        self._stdout = _not_blocking(self._popen.stdout)
        self._stderr = _not_blocking(self._popen.stderr)
        self._loop.add_reader(self._stdout, self._read)
        self._loop.add_reader(self._stderr, self._listen)

    def write(self, frame: bytes) -> None:
        """Sends a frame, at once as far as the pipe takes it.

        The deadline's clock runs while the event loop is busy.
        """
        sent = 0 if self._outbox else self._push(frame)
        if sent < len(frame):
            if not self._outbox:
                self._loop.add_writer(self._stdin, self._flush)
            self._outbox += frame[sent:]

    @property
    def memory_mb(self) -> float:
        """MiB that it holds, with what its engines run."""
        return resident_mb(self._popen.pid)

    def kill(self) -> None:
        """Ends it and its children at once."""
        if not self._gone.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Closes its stdin, which ends it; kills it after CLOSE_SECONDS."""
        self._close_stdin()
        await asyncio.wait([self._gone], timeout=CLOSE_SECONDS)
        self.kill()
        await self._gone

    def last_words(self) -> str:
        """The lines of its stderr that matter most, as part of a one-line message.

        The head of a report by faulthandler, else the last ones.
        """
        text = self._stderr_end.decode(errors="replace")
        _, fatal, report = text.rpartition("Fatal Python error")
        lines = [line.strip() for line in (fatal + report).splitlines()]
        lines = [line for line in lines if line]
        shown = lines[:SHOWN_LINES] if fatal else lines[-SHOWN_LINES:]
        return f"; its last words: {' | '.join(shown)}" if shown else ""

    def _read(self) -> None:
        data = _available(self._stdout)
        self._inbox += data or b""
        for payload in take_frames(self._inbox):
            self._received(self, payload)
        # The worker alone holds the other end, so the worker has ended.
        if data == b"":
            self._bury()

    def _listen(self) -> None:
        data = _available(self._stderr)
        self._stderr_end = (self._stderr_end + (data or b""))[-STDERR_BYTES:]
        # Neither it nor a child of its engines will say any more.
        if data == b"":
            self._loop.remove_reader(self._stderr)

    def _flush(self) -> None:
        del self._outbox[: self._push(self._outbox)]
        if not self._outbox:
            self._loop.remove_writer(self._stdin)

    def _push(self, data: bytes | bytearray) -> int:
        """Writes what the pipe takes now; gives the number of bytes."""
        try:
            return os.write(self._stdin.fileno(), data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            # Nobody is left to read it; `_read` notices the end.
            return len(data)

    def _bury(self) -> None:
        # Children of its engines may outlive it: they go with it.
        self.kill()
        code = self._popen.wait()
        self._listen()
        self._loop.remove_reader(self._stdout)
        self._loop.remove_reader(self._stderr)
        self._close_stdin()
        self._stdout.close()
        self._stderr.close()
        os.close(self._lifeline)
        self._gone.set_result(None)
        how = f"exited with status {code}"
        if code < 0:
            how = f"died of {signal.Signals(-code).name}"
        unexplained = " (memory ran out?)" if code == -signal.SIGKILL else ""
        self._ended(self, f"the engine process {how}{self.last_words() or unexplained}")

    def _close_stdin(self) -> None:
        if not self._stdin.closed:
            self._loop.remove_writer(self._stdin)
            self._stdin.close()


def _start(lifeline: int) -> "subprocess.Popen[bytes]":
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    return subprocess.Popen(
        [*COMMAND, str(lifeline)],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[lifeline],
        env=os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"},
        start_new_session=True,
    )


def resident_mb(session: int) -> float:
    """MiB that the processes of a session hold; 0 where there is no /proc."""
    pages = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = file.read_text()
        except OSError:
            # It has just ended.
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
    """The bytes that are there: empty at the end, None while there are none."""
    try:
        return os.read(pipe.fileno(), READ_BYTES)
    except BlockingIOError:
        return None
