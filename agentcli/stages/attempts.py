"""The log of each attempt of a stage, and what its progress writes there."""

import asyncio
import logging
import os
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from itertools import count, takewhile
from pathlib import Path
from typing import IO

from agentcli.records.faults import printable
from agentcli.records.files import writing
from agentcli.records.runs import now
from agentcli.reports.standing import Count, Progress, Standing

LINE_SECONDS = 30.0
GOES_ON = "goes on from the attempt before"
"""The line of an attempt that was resumed."""


class AttemptLog:
    """The log of one attempt of a stage in RUN/logs/, with more than the terminal shows.

    A line is time (UTC), level and text: the command, progress every half minute,
    notes, and how the attempt ended; an error includes its traceback. The log of a
    killed process has no end. Nothing is written before the stage writes its first
    output; earlier lines are buffered and written first.
    """

    def __init__(self, folder: Path, stage: str, first: str) -> None:
        self._folder = folder
        self._stage = stage.replace("/", "-")
        self._early: list[str] = []
        self._file: IO[str] | None = None
        self.line(first)

    def line(self, text: str, level: str = "INFO") -> None:
        """Writes a line, or buffers it until the file is open."""
        shown = "\n".join(map(printable, text.split("\n")))
        line = f"{now()} {level} {shown}\n"
        if self._file is None:
            self._early.append(line)
        else:
            self._file.write(line)
            self._file.flush()

    def open(self) -> None:
        """Creates the file under the first unused number."""
        if self._file is not None:
            return
        # Earlier attempts keep their logs.
        path = self._folder / self._name(len(self._earlier()) + 1)
        with writing(path):
            self._folder.mkdir(parents=True, exist_ok=True)
            # Closed by `close`.
            self._file = path.open("w", encoding="utf-8", errors="backslashreplace")
        self._file.writelines(self._early)
        self._file.flush()

    def go_on(self) -> float:
        """Says that this attempt goes on from earlier ones, before `open`.

        Returns their seconds, by their logs. A killed one counts up to its last line:
        up to half a minute of it is missing.
        """
        self.line(GOES_ON)
        total = 0.0
        for path in reversed(self._earlier()):
            text = path.read_text(encoding="utf-8", errors="replace")
            total += _span(text)
            if f" INFO {GOES_ON}\n" not in text:
                break
        return total

    def _earlier(self) -> list[Path]:
        """The logs of the stage's attempts so far, the first one first."""
        paths = (self._folder / self._name(number) for number in count(1))
        return [*takewhile(os.path.lexists, paths)]

    def _name(self, number: int) -> str:
        return f"{self._stage}-{number:03d}.log"

    def close(self, error: BaseException | None) -> None:
        """Writes how the attempt ended."""
        if self._file is None:
            return
        if error is None:
            self.line("finished")
        elif isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
            self.line("interrupted", "WARNING")
        else:
            self.line("".join(traceback.format_exception(error)).rstrip(), "ERROR")
        self._file.close()
        self._file = None


def _span(log: str) -> float:
    """The seconds between the first and the last line of a log that have a time."""
    times = []
    for line in log.splitlines():
        # A traceback has lines of its own, without a time.
        with suppress(ValueError):
            times.append(datetime.fromisoformat(line.partition(" ")[0]).timestamp())
    return max(0.0, times[-1] - times[0]) if times else 0.0


class Logged(Progress):
    """Passes everything on to another Progress, and writes it to the log."""

    def __init__(self, progress: Progress, log: AttemptLog) -> None:
        self._progress = progress
        self._log = log
        self._count: Count | None = None
        """None if nothing is counted."""

    def start(self, standing: Standing) -> None:
        """Starts a bar, and writes a line."""
        self._progress.start(standing)
        self._count = Count(standing)
        self._last_line = self._count.begun
        before = f", {standing.done} done before" if standing.done else ""
        self._log.line(f"{standing.title}: start{before}")

    def advance(
        self,
        n: int = 1,
        success: float | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Advances the bar; writes a line every half minute."""
        self._progress.advance(n, success, figures)
        if self._count is None:
            return
        self._count.add(n, success, figures)
        if time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self._log.line(_line(self._count))

    def wait(self, text: str) -> None:
        """Shows what the stage waits for, and writes a line."""
        self._progress.wait(text)
        self._log.line(text)

    def phase(self, text: str, figures: Mapping[str, float]) -> None:
        """Shows the progress of the bar's next phase."""
        self._progress.phase(text, figures)

    def note(self, text: str) -> None:
        """Shows a line, and writes it."""
        self._progress.note(text)
        self._log.line(text)

    def stop(self) -> None:
        """Ends the bar, and writes its last state."""
        self._progress.stop()
        if self._count is not None:
            self._log.line(_line(self._count))
            self._count = None


def _line(count: Count) -> str:
    parts = [count.number, *count.state, f"{count.seconds:.1f} s"]
    return f"{count.standing.title}: {', '.join(parts)}"


class NoteHandler(logging.Handler):
    """Turns warnings of the layers below the stages into notes."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.WARNING)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        self._progress.note(record.getMessage())
