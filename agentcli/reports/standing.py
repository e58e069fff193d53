"""The progress of a piece of work: the interface that shows it, and its numbers."""

import time
from collections.abc import Mapping
from typing import NamedTuple


class Standing(NamedTuple):
    """Where a bar begins."""

    title: str
    total: int | None
    """None where it is not known."""
    done: int = 0
    """Things that were finished before."""
    success: float | None = None
    """Share of success among these; None where they were not judged."""
    together: int = 1
    """Items processed at once: a rate is shown only once as many are done."""


class Progress:
    """One bar at a time. This one shows nothing."""

    def start(self, standing: Standing) -> None:
        """Begins a bar."""

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


class Count:
    """The things done so far, and how many of those that were judged succeeded."""

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.done = standing.done
        self.figures: dict[str, float] = {}
        """The newest values, by name."""
        self.begun = time.monotonic()
        self._judged = 0 if standing.success is None else standing.done
        self._successes = self._judged * (standing.success or 0.0)

    def add(
        self,
        n: int,
        success: float | None,
        figures: Mapping[str, float] | None,
    ) -> None:
        """Counts `n` more, with the share of success among them."""
        self.done += n
        self.figures.update(figures or {})
        if success is not None:
            self._successes += n * success
            self._judged += n

    @property
    def success(self) -> float | None:
        """The share of success; None where nothing was judged."""
        return self._successes / self._judged if self._judged else None

    @property
    def number(self) -> str:
        """How many are done, of how many: "3/10"."""
        total = self.standing.total
        return str(self.done) if total is None else f"{self.done}/{total}"

    @property
    def state(self) -> list[str]:
        """Success and figures, each as text."""
        parts = []
        success = self.success
        if success is not None:
            parts.append(f"success {success:.2f}")
        for name, value in self.figures.items():
            parts.append(f"{name} {value:.4g}")
        return parts

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.begun
