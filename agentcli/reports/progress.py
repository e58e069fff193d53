"""The terminal's progress: a bar on stderr with rate, success so far and time left.

Into a pipe or a log file no bar is drawn. A plain line with the same figures is written
every half minute, and one at the end. Nothing here writes to stdout. Rich honours
NO_COLOR.
"""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from agentcli.records.faults import printable
from agentcli.reports.standing import Count, Progress, Standing

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import Task
    from rich.status import Status

PLAIN_LINE_SECONDS = 30.0
BAR, NARROW_BAR = 40, 20
"""Columns of the bar itself, in a wide terminal and in one of less than WIDE."""
WIDE = 100


class TerminalProgress(Progress):
    """One bar at a time, on stderr.

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
        self._status: Status | None = None
        self._count: Count | None = None
        """None where nothing is counted."""
        self._waiting_since: float | None = None

    def start(self, standing: Standing) -> None:
        """Begins a bar."""
        self.stop()
        count = self._count = Count(standing)
        self._phase = ""
        self._moved = count.begun
        self._unrated = 0.0
        self._waiting_since = None
        self._last_line = count.begun
        if self._draws:
            self._bar = _bar(self._console, lambda: self._left(count))
            self._bar.start()
            self._task = self._bar.add_task(
                standing.title,
                total=standing.total,
                completed=standing.done,
                state=self._state(count),
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
        if self._count is None:
            return
        self._end_waiting(self._count)
        self._count.add(n, success, figures)
        self._moved = time.monotonic()
        self._phase = ""
        self._show(self._count)

    def phase(self, text: str, figures: Mapping[str, float]) -> None:
        """Shows the progress of the bar's next item, with the newest figures."""
        if self._count is None:
            return
        self._end_waiting(self._count)
        self._phase = text
        self._count.figures.update(figures)
        self._show(self._count)

    def wait(self, text: str) -> None:
        """Shows what the work waits for; rates ignore the wait before the first item."""
        if self._count is not None:
            self._phase = text
            if self._waiting_since is None:
                self._waiting_since = time.monotonic()
            self._show(self._count)
        elif self._draws:
            self.stop()
            self._status = self._console.status(Text(printable(text)))
            self._status.start()

    def note(self, text: str) -> None:
        """Prints a line that stays."""
        if not self._quiet:
            line = Text(printable(text))
            line.highlight_regex("^warning:", "bold yellow")
            self._console.print(line)

    def stop(self) -> None:
        """Ends the bar; a plain line says what was done and how long it took."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._count is None:
            return
        self._phase = ""
        self.note(self._line(self._count, f"{self._count.seconds:.1f} s"))
        self._count = None

    def _show(self, count: Count) -> None:
        """Moves the bar; without one, prints a line every half minute."""
        if self._bar is not None:
            state = self._state(count)
            self._bar.update(self._task, completed=count.done, state=state)
            return
        now = time.monotonic()
        if now - self._last_line >= PLAIN_LINE_SECONDS:
            self._last_line = now
            self.note(self._line(count, self._left(count)))

    def _end_waiting(self, count: Count) -> None:
        """Takes the wait before the first thing out of the time that rates count."""
        if self._waiting_since is None:
            return
        if count.done == count.standing.done:
            self._unrated += time.monotonic() - self._waiting_since
        self._waiting_since = None

    def _line(self, count: Count, last: str) -> str:
        parts = filter(None, [count.number, self._state(count), last])
        return f"{count.standing.title}: {', '.join(parts)}"

    def _state(self, count: Count) -> str:
        parts = [self._phase] if self._phase else []
        parts += count.state
        rate = self._rate(count)
        # Beside a phase there is no room for it.
        if rate > 0 and not self._phase:
            parts.append(_per_time(rate))
        return ", ".join(parts)

    def _rate(self, count: Count) -> float:
        """Things a second up to the last one; 0 where too few are done to say."""
        seconds = self._moved - count.begun - self._unrated
        standing = count.standing
        done = count.done - standing.done
        is_enough = done >= standing.together or count.done == standing.total
        return done / seconds if seconds > 0 and is_enough else 0.0

    def _left(self, count: Count) -> str:
        """The time left at this rate, "" where it is not known."""
        rate = self._rate(count)
        total = count.standing.total
        if total is None or rate == 0:
            return ""
        seconds = (total - count.done) / rate
        # Between two things the time that is left goes on falling.
        since = time.monotonic() - self._moved
        return f"{timedelta(seconds=round(max(0.0, seconds - since)))} left"


def _per_time(rate: float) -> str:
    """A rate in the unit in which it is at least 1: 12.00/s, 3.20/min, else 0.50/h."""
    if rate >= 1:
        return f"{rate:.2f}/s"
    if rate * 60 >= 1:
        return f"{rate * 60:.2f}/min"
    return f"{rate * 3600:.2f}/h"


def _bar(console: Console, left: Callable[[], str]) -> "Bar":
    """A bar; `left` says how much time is left."""
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn
    from rich.progress import Progress as Bar

    class TimeLeft(ProgressColumn):
        """The time left; rich's own column knows none where a thing takes 30 s."""

        def render(self, task: "Task") -> Text:
            return Text(left(), style="cyan")

    return Bar(
        # Names may hold brackets, which Rich would take for markup.
        TextColumn("{task.description}", markup=False),
        BarColumn(BAR if console.width >= WIDE else NARROW_BAR),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}", markup=False),
        TimeLeft(),
        console=console,
        # It makes room for the plain line that `stop` leaves.
        transient=True,
    )
