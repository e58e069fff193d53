"""How a stage reports its progress.

The terminal's implementation is reports.progress; a script may pass Silent.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from agentcli.reports.count import Count


class Progress(Protocol):
    """One bar at a time."""

    def start(
        self,
        description: str,
        total: int | None,
        done: int = 0,
        success: float | None = None,
        together: int = 1,
    ) -> None:
        """Begins a bar at `done` of `total`, with their share of `success`.

        `together` are worked on at once: a rate is known once so many are done.
        """

    def advance(
        self,
        n: int = 1,
        success: float | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Moves the bar by `n`.

        `success` is the share of success among these; `figures` are the newest values,
        by name.
        """

    def wait(self, text: str) -> None:
        """Shows what is waited for, before there is anything to count."""

    def phase(self, text: str, figures: Mapping[str, float]) -> None:
        """Shows how far the bar's next thing is, with the newest values."""

    def note(self, text: str) -> None:
        """Shows a line beside the bar."""

    def stop(self) -> None:
        """Ends the bar."""


class Silent:
    """Shows nothing."""

    def start(
        self,
        description: str,
        total: int | None,
        done: int = 0,
        success: float | None = None,
        together: int = 1,
    ) -> None: ...
    def advance(
        self,
        n: int = 1,
        success: float | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None: ...
    def wait(self, text: str) -> None: ...
    def phase(self, text: str, figures: Mapping[str, float]) -> None: ...
    def note(self, text: str) -> None: ...
    def stop(self) -> None: ...


class Within:
    """The progress of one stage of a loop, as a phase of the loop's bar.

    Its notes are in the log of the stage. `success` is shown as `of`, where that is a
    name.
    """

    def __init__(self, loop: Progress, of: str | None = None) -> None:
        self._loop = loop
        self._of = of

    def start(
        self,
        description: str,
        total: int | None,
        done: int = 0,
        success: float | None = None,
        together: int = 1,
    ) -> None:
        """Begins a phase."""
        self._count = Count(description, total, done, success)
        self._show()

    def advance(
        self,
        n: int = 1,
        success: float | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Shows how far the phase is."""
        self._count.add(n, success, figures)
        self._show()

    def wait(self, text: str) -> None:
        """Shows what the loop waits for."""
        self._loop.wait(text)

    def phase(self, text: str, figures: Mapping[str, float]) -> None: ...
    def note(self, text: str) -> None: ...
    def stop(self) -> None: ...

    def _show(self) -> None:
        count = self._count
        figures = {}
        if count.success is not None and self._of is not None:
            figures[self._of] = round(count.success, 2)
        self._loop.phase(f"{count.description} {count.number}", figures)


def updates_bar(
    progress: Progress,
    description: str,
) -> Callable[[int, int, Mapping[str, float]], None]:
    """A trainer's callback (updates done, updates in all, figures) that moves the bar.

    The first call, without figures, says where training begins.
    """

    done = 0

    def move(
        update: int,
        total: int,
        figures: Mapping[str, float],
    ) -> None:
        nonlocal done
        if not figures:
            progress.start(description, total, done=update)
        else:
            progress.advance(update - done, figures={"loss": figures["loss"]})
        done = update
        if update == total:
            progress.stop()

    return move
