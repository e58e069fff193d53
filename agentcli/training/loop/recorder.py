"""What happens between two updates of any training: a line to metrics.jsonl and to the trackers, a snapshot, a word of progress.

In this order, so that a snapshot never knows of a line that is not on disk. A training that goes on cuts metrics.jsonl to the
lines that its snapshot knows and appends: no line is there twice and none is missing.
"""

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from agentcli.errors import DataError
from agentcli.records.files import RecordWriter, read_records, writing
from agentcli.training.loop.metrics import MetricsLine
from agentcli.training.loop.snapshots import AGAIN, Snapshots
from agentcli.training.loop.trackers import Tracked, open_trackers

Progress = Callable[[int, int, dict[str, float]], None]
"""Called with (updates done, updates in all, figures to show): once before the first update, without figures, and after each
metrics line."""
Line = TypeVar("Line", bound=MetricsLine)
Track = Callable[[Line], None]


class Recorder(Generic[Line]):
    """The lines of one training, in `metrics` (plain .jsonl) and in `lines`; those from before it was killed included.

    Every process has one; only the first writes. Enter it when the first line is about to be written. Raises DataError where a
    snapshot was found but not all of its lines.
    """

    def __init__(
        self, metrics: Path, kind: type[Line], total: int, snapshots: Snapshots, main: bool, progress: Progress | None
    ) -> None:
        self.total = total
        self.done = snapshots.update
        self.counters: dict[str, float] = snapshots.found.counters if snapshots.found else {}
        self.lines: list[Line] = _lines_before(metrics, kind, snapshots)
        self.track: Track[Line] | None = None
        self.main = main
        self._metrics, self._snapshots, self._progress = metrics, snapshots, progress
        self._writer: RecordWriter | None = None
        self._started = time.perf_counter() - (self.lines[-1].seconds if self.lines else 0.0)

    def begin(self) -> None:
        """Tell the progress bar where training stands: at 0, or at the snapshot that it goes on from."""
        if self._progress is not None:
            self._progress(self.done, self.total, {})

    def seconds(self) -> float:
        """Spent so far, also before the snapshot."""
        return round(time.perf_counter() - self._started, 3)

    def record(self, update: int, line: Line | None, figures: dict[str, float], counters: dict[str, float]) -> None:
        """Called by every process after each update. `line` is None when none is due, `figures` are for the progress bar and
        `counters` are what it finds in `self.counters` at the next update, also after a kill."""
        if line is not None:
            self.lines.append(line)
            if self._writer is not None:
                self._writer.write(line)
            if self.track is not None:
                self.track(line)
        self.counters = counters
        self._snapshots.save(update, len(self.lines), counters)
        if line is not None and self._progress is not None:
            self._progress(update, self.total, figures)

    def __enter__(self) -> "Recorder[Line]":
        if self.main:
            if self._snapshots.found is not None:
                _cut(self._metrics, len(self.lines))
            self._writer = RecordWriter(self._metrics, append=self._snapshots.found is not None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, trace)


def train_recorded(
    trainer: Any, recorder: Recorder[Any], tracked: Tracked | None, before: int, ready: Callable[[], None] | None
) -> None:
    """`ready`, then the updates of `trainer` that are not done. `before`: updates the optimiser had seen before update 1."""
    if ready is not None and recorder.main:
        ready()
    recorder.begin()
    with recorder, open_trackers(tracked, before, recorder.done) as recorder.track:
        if recorder.done < recorder.total:
            trainer.train()


def _lines_before(metrics: Path, kind: type[Line], snapshots: Snapshots) -> list[Line]:
    found = snapshots.found
    if found is None or found.lines == 0:
        return []
    lines = list(islice(read_records(metrics, kind), found.lines))
    if len(lines) < found.lines:
        raise DataError(
            f"{metrics}: ends after {len(lines)} lines, {snapshots.path} was written after {found.lines}; {AGAIN}"
        )
    return lines


def _cut(metrics: Path, lines: int) -> None:
    with writing(metrics), open(metrics, "ab+") as file:
        file.seek(0)
        for _ in range(lines):
            file.readline()
        file.truncate(file.tell())
