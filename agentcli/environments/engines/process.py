"""One worker process as the event loop sees it: frames both ways, the end of its
stderr, and its end.

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
from typing import IO, cast

from agentcli.environments.engines.frames import take_frames

CLOSE_SECONDS = 2.0
"""How long a process may take to close its engines before it is killed."""
STDERR_BYTES = 2000
"""How much of the end of a process's stderr is kept for error messages."""
READ_BYTES = 1 << 18
"""More than a pipe holds: one read takes all that a dead process has left."""

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
        self._received, self._ended = received, ended
        self._loop = asyncio.get_running_loop()
        self._inbox, self._outbox = bytearray(), bytearray()
        self._last_words = b""
        self._gone: asyncio.Future[None] = self._loop.create_future()
        theirs, self._lifeline = os.pipe()
        try:
            self._popen = _start(theirs)
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(theirs)
        self._stdin, self._stdout, self._stderr = (
            cast(IO[bytes], pipe)
            for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr)
        )
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(self._stdout, self._read)
        self._loop.add_reader(self._stderr, self._listen)

    def write(self, frame: bytes) -> None:
        """Send a frame, at once as far as the pipe takes it: the deadline's clock runs
        while the event loop is busy.
        """
        sent = 0 if self._outbox else self._push(frame)
        if sent < len(frame):
            if not self._outbox:
                self._loop.add_writer(self._stdin, self._flush)
            self._outbox += frame[sent:]

    def kill(self) -> None:
        """End it and its children at once."""
        if not self._gone.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    async def close(self) -> None:
        """Close its stdin, which ends it; kill it after CLOSE_SECONDS."""
        self._close_stdin()
        await asyncio.wait([self._gone], timeout=CLOSE_SECONDS)
        self.kill()
        await self._gone

    def last_words(self) -> str:
        """The lines of its stderr that matter most, as part of a one-line message: the
        head of a report by faulthandler, else the last ones; empty when there are none.
        """
        text = self._last_words.decode(errors="replace")
        _, fatal, report = text.rpartition("Fatal Python error")
        lines = [line.strip() for line in (fatal + report).splitlines() if line.strip()]
        shown = lines[:5] if fatal else lines[-5:]
        return f"; its last words: {' | '.join(shown)}" if shown else ""

    def _read(self) -> None:
        """Frames have come, or the pipe has ended: the worker alone holds its other
        end, so the worker has.
        """
        data = _available(self._stdout)
        self._inbox += data or b""
        for payload in take_frames(self._inbox):
            self._received(self, payload)
        if data == b"":
            self._bury()

    def _listen(self) -> None:
        """It, or a child of its engines, has said something on stderr; or nobody will
        any more.
        """
        data = _available(self._stderr)
        self._last_words = (self._last_words + (data or b""))[-STDERR_BYTES:]
        if data == b"":
            self._loop.remove_reader(self._stderr)

    def _flush(self) -> None:
        del self._outbox[: self._push(self._outbox)]
        if not self._outbox:
            self._loop.remove_writer(self._stdin)

    def _push(self, data: bytes | bytearray) -> int:
        """How many bytes the pipe takes now; all of them when nobody is left to read
        them.
        """
        try:
            return os.write(self._stdin.fileno(), data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return len(data)

    def _bury(self) -> None:
        """It has ended, or is about to. Children of its engines may outlive it: they go
        with it.
        """
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
        how = (
            f"exited with status {code}"
            if code >= 0
            else f"died of {signal.Signals(-code).name}"
        )
        unexplained = " (memory ran out?)" if code == -signal.SIGKILL else ""
        self._ended(self, f"the engine process {how}{self.last_words() or unexplained}")

    def _close_stdin(self) -> None:
        if not self._stdin.closed:
            self._loop.remove_writer(self._stdin)
            self._stdin.close()


def _start(lifeline: int) -> "subprocess.Popen[bytes]":
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
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


def _available(pipe: IO[bytes]) -> bytes | None:
    """What can be read without waiting: empty at the end, None while there is nothing."""
    try:
        return os.read(pipe.fileno(), READ_BYTES)
    except BlockingIOError:
        return None
