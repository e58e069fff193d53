"""The progress bar during the stages of a loop and during a training."""

from collections.abc import Callable, Mapping

from agentcli.reports.standing import Count, Progress, Standing


class Within(Progress):
    """The progress of one stage of a loop, as a phase of the loop's bar.

    Its notes are in the stage's log. `success` is shown under the name `of`, if given.
    """

    def __init__(self, loop: Progress, of: str | None = None) -> None:
        self._loop = loop
        self._of = of

    def start(self, standing: Standing) -> None:
        """Begins a phase."""
        self._count = Count(standing)
        self._show()

    def advance(
        self,
        n: int = 1,
        success: float | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Shows the progress of the phase."""
        self._count.add(n, success, figures)
        self._show()

    def wait(self, text: str) -> None:
        """Shows what the loop is waiting for."""
        self._loop.wait(text)

    def _show(self) -> None:
        count = self._count
        figures = {}
        if count.success is not None and self._of is not None:
            figures[self._of] = round(count.success, 2)
        self._loop.phase(f"{count.standing.title} {count.number}", figures)


def updates_bar(
    progress: Progress,
    title: str,
) -> Callable[[int, int, Mapping[str, float]], None]:
    """A trainer's callback (updates done, updates in all, figures) for the bar.

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
            progress.start(Standing(title, total, done=update))
        else:
            progress.advance(update - done, figures={"loss": figures["loss"]})
        done = update
        if update == total:
            progress.stop()

    return move
