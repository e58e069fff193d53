"""How a stage reports its progress.

The terminal's implementation is reports.progress; a script may pass Silent.
"""

from collections.abc import Callable, Mapping
from typing import Protocol


class Progress(Protocol):
    """One bar at a time."""

    def start(
        self,
        description: str,
        total: int | None,
        done: int = 0,
        success: float | None = None,
    ) -> None:
        """Begins a bar at `done` of `total`, with their share of `success`."""

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
    ) -> None: ...
    def advance(
        self,
        n: int = 1,
        success: float | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None: ...
    def note(self, text: str) -> None: ...
    def stop(self) -> None: ...


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
