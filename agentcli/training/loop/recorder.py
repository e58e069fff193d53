"""The records of a training: after an update a line to metrics.jsonl and to the
trackers, a snapshot, a word of progress.

They come in this order, so that a snapshot never knows of a line that is not on disk. A
training that resumes cuts metrics.jsonl to the lines that its snapshot knows, and
appends: no line is there twice and none is missing.
"""

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from agentcli.errors import DataError
from agentcli.records.files import RecordWriter, read_records, writing
from agentcli.training.loop.metrics import MetricsLine
from agentcli.training.loop.snapshots import AGAIN, Snapshots

OnUpdate = Callable[[int, int, dict[str, float]], None]
"""Called with (updates done, updates in all, figures to show): once before the first
update, without figures, and after each metrics line.
"""
Line = TypeVar("Line", bound=MetricsLine)
Track = Callable[[Line], None]


class Recorder(Generic[Line]):
    """The lines of one training, in `metrics` (plain .jsonl) and in `lines`; those from
    before it was killed included.

    Every process has one; only the first writes. Enter it when the first line is about
    to be written. Raises DataError where a snapshot was found but not all of its lines.
    """

    def __init__(
        self,
        metrics: Path,
        kind: type[Line],
        total: int,
        snapshots: Snapshots,
        main: bool,
        progress: OnUpdate | None,
    ) -> None:
        self.total = total
        self.done = snapshots.update
        self.counters: dict[str, float] = (
            snapshots.resumed.counters if snapshots.resumed else {}
        )
        self.lines: list[Line] = _lines_before(metrics, kind, snapshots)
        self.track: Track[Line] | None = None
        self._main = main
        self._metrics = metrics
        self._snapshots = snapshots
        self._progress = progress
        self._writer: RecordWriter | None = None
        self._started = time.perf_counter() - (
            self.lines[-1].seconds if self.lines else 0.0
        )

    def begin(self) -> None:
        """Tell the progress bar where training stands: at 0, or at the snapshot that it
        goes on from.
        """
        if self._progress is not None:
            self._progress(self.done, self.total, {})

    def seconds(self) -> float:
        """Spent so far, also before the snapshot."""
        return round(time.perf_counter() - self._started, 3)

    def record(
        self,
        update: int,
        line: Line | None,
        figures: dict[str, float],
        counters: dict[str, float],
    ) -> None:
        """Called by every process after each update. `line` is None when none is due,
        `figures` are for the progress bar and `counters` are what it finds in
        `self.counters` at the next update, also after a kill.
        """
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
        if self._main:
            if self._snapshots.resumed is not None:
                _cut(self._metrics, len(self.lines))
            self._writer = RecordWriter(
                self._metrics, append=self._snapshots.resumed is not None
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, trace)


def _lines_before(metrics: Path, kind: type[Line], snapshots: Snapshots) -> list[Line]:
    written = snapshots.resumed.lines if snapshots.resumed else 0
    if written == 0:
        return []
    lines = list(islice(read_records(metrics, kind), written))
    if len(lines) < written:
        raise DataError(
            f"{metrics}: ends after {len(lines)} lines, {snapshots.path} was written "
            f"after {written}; {AGAIN}"
        )
    return lines


def _cut(metrics: Path, lines: int) -> None:
    with writing(metrics), open(metrics, "ab+") as file:
        file.seek(0)
        for _ in range(lines):
            file.readline()
        file.truncate(file.tell())
