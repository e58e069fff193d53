"""How far a piece of work is: the numbers behind a bar, a log line and a phase."""

import time
from collections.abc import Mapping


class Count:
    """The things done so far, and how many of those that were judged succeeded.

    `done` things were finished before; `success` is the share of success among them,
    None where they were not judged. `total` is None where it is not known.
    """

    def __init__(
        self,
        description: str,
        total: int | None,
        done: int = 0,
        success: float | None = None,
    ) -> None:
        self.description = description
        self.total = total
        self.done = done
        self.done_before = done
        self.figures: dict[str, float] = {}
        """The newest values, by name."""
        self.begun = time.monotonic()
        self._judged = 0 if success is None else done
        self._successes = self._judged * (success or 0.0)

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
        """What is done, of how many: "3/10"."""
        return str(self.done) if self.total is None else f"{self.done}/{self.total}"

    @property
    def state(self) -> list[str]:
        """Success and figures, each as text."""
        parts = [f"{name} {value:.4g}" for name, value in self.figures.items()]
        success = self.success
        return parts if success is None else [f"success {success:.2f}", *parts]

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.begun
