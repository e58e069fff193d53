"""The terminal's progress: a bar on stderr with rate, success so far and time left.

Into a pipe or a log file no bar is drawn. A plain line with the same figures is written
every half minute, and one at the end. Nothing here writes to stdout. Rich honours
NO_COLOR.
"""

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console

from agentcli.records.faults import printable

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

PLAIN_LINE_SECONDS = 30.0


class TerminalProgress:
    """One bar at a time; implements stages.progress.Progress.

    `quiet`: nothing at all. `json`: a program reads stdout, so no bar is drawn, only
    plain lines.
    """

    def __init__(
        self, quiet: bool = False, json: bool = False, console: Console | None = None
    ) -> None:
        self._quiet = quiet
        self._console = console or Console(
            stderr=True, highlight=False, soft_wrap=True, emoji=False
        )
        self._draws = not quiet and not json and self._console.is_terminal
        self._bar: Bar | None = None
        self._description = ""

    def start(
        self,
        description: str,
        total: int | None,
        done: int = 0,
        success: float | None = None,
    ) -> None:
        """Begins a bar of `total` things, None where that is not known.

        `done` of them were finished earlier. `success` is the share of success among
        these, None where they were not judged.
        """
        self.stop()
        self._description = description
        self._total = total
        self._done = done
        self._done_before = done
        self._judged = 0 if success is None else done
        self._successes = self._judged * (success or 0.0)
        self._figures: dict[str, float] = {}
        self._begun = time.monotonic()
        self._last_line = self._begun
        if self._draws:
            self._bar = _bar(self._console)
            self._bar.start()
            self._task = self._bar.add_task(
                description, total=total, completed=done, state=self._state()
            )

    def advance(
        self,
        n: int = 1,
        success: float | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Counts `n` more, with the share of success among them.

        `figures` are shown beside it (loss, ...).
        """
        self._done += n
        self._figures.update(figures or {})
        if success is not None:
            self._successes += n * success
            self._judged += n
        if self._bar is not None:
            self._bar.update(self._task, advance=n, state=self._state())
            return
        now = time.monotonic()
        if now - self._last_line >= PLAIN_LINE_SECONDS:
            self._last_line = now
            self.note(self._line(self._left()))

    def note(self, text: str) -> None:
        """Prints a line that stays."""
        if not self._quiet:
            self._console.print(printable(text), markup=False)

    def stop(self) -> None:
        """Ends the bar; a plain line says what was done and how long it took."""
        if not self._description:
            return
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        seconds = time.monotonic() - self._begun
        self.note(self._line(f"{seconds:.1f} s"))
        self._description = ""

    def _line(self, last: str) -> str:
        done = str(self._done)
        if self._total is not None:
            done += f"/{self._total}"
        parts = filter(None, [done, self._state(), last])
        return f"{self._description}: {', '.join(parts)}"

    def _state(self) -> str:
        parts = []
        if self._judged:
            parts.append(f"success {self._successes / self._judged:.2f}")
        parts += [f"{name} {value:.4g}" for name, value in self._figures.items()]
        rate = self._rate()
        if rate > 0:
            parts.append(_per_time(rate))
        return ", ".join(parts)

    def _rate(self) -> float:
        """Things a second since `start`; 0 before the first."""
        seconds = time.monotonic() - self._begun
        return (self._done - self._done_before) / seconds if seconds > 0 else 0.0

    def _left(self) -> str:
        """The time left at this rate, "" where it is not known."""
        rate = self._rate()
        if self._total is None or rate == 0:
            return ""
        seconds = max(0, self._total - self._done) / rate
        return f"{timedelta(seconds=round(seconds))} left"


def _per_time(rate: float) -> str:
    """A rate in the unit in which it is at least 1: 12.00/s, 3.20/min, else 0.50/h."""
    if rate >= 1:
        return f"{rate:.2f}/s"
    if rate * 60 >= 1:
        return f"{rate * 60:.2f}/min"
    return f"{rate * 3600:.2f}/h"


def _bar(console: Console) -> "Bar":
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    description = TextColumn("{task.description}", markup=False)
    state = TextColumn("{task.fields[state]}", markup=False)
    return Bar(
        description,
        BarColumn(),
        MofNCompleteColumn(),
        state,
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
