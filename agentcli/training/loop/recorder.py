"""Records a training after each update: metrics line, snapshot, progress.

They are written in this order, so a snapshot never counts a line that is not on disk. A
training that resumes cuts metrics.jsonl to the lines that its snapshot counts, and
appends: no line is duplicated or missing.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

from agentcli.errors import DataError
from agentcli.records.files import RecordWriter, read_records, writing
from agentcli.training.loop.snapshots import AGAIN, SnapshotHeader, Snapshots
from agentcli.training.metrics import MetricsLine

OnUpdate = Callable[[int, int, dict[str, float]], None]
"""Called with (updates done, updates in all, figures to show): once before the first
update, without figures, and after each metrics line.
"""
Line = TypeVar("Line", bound=MetricsLine)
Track = Callable[[Line], None]


class Recorder(Generic[Line]):
    """The metrics lines of one training, including those from before it was killed.

    They are in the file `metrics` (plain .jsonl) and in `lines`. Every process has a
    recorder; only the first one writes. Raises DataError if a snapshot exists but some
    of its lines are missing.
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
        self.done = 0
        self.counters: dict[str, float] = {}
        """A trainer's own running sums, which survive a kill."""
        self.lines: list[Line] = []
        if snapshots.resumed is not None:
            self.done = snapshots.resumed.update
            self.counters = snapshots.resumed.counters
            self.lines = _lines_before(metrics, kind, snapshots.resumed, snapshots.path)
        seconds_before = self.lines[-1].seconds if self.lines else 0.0
        self.track: Track[Line] | None = None
        self._main = main
        self._metrics = metrics
        self._snapshots = snapshots
        self._progress = progress
        self._writer: RecordWriter | None = None
        self._started = time.perf_counter() - seconds_before

    def begin(self) -> None:
        """Shows where training begins: at 0, or at the snapshot that it resumes."""
        if self._progress is not None:
            self._progress(self.done, self.total, {})

    def seconds(self) -> float:
        """Training time so far, including the time before the snapshot."""
        return round(time.perf_counter() - self._started, 3)

    def record(self, update: int, line: Line | None, figures: dict[str, float]) -> None:
        """Records one update; every process calls it.

        `line` is None if none is due. `figures` are for the progress bar.
        """
        if line is not None:
            self.lines.append(line)
            if self._writer is not None:
                self._writer.write(line)
            if self.track is not None:
                self.track(line)
        self._snapshots.save(update, len(self.lines), self.counters)
        if line is not None and self._progress is not None:
            self._progress(update, self.total, figures)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Opens the metrics file to append after the lines that the snapshot counts."""
        if not self._main:
            yield
            return
        resumed = self._snapshots.resumed is not None
        if resumed:
            _cut(self._metrics, len(self.lines))
        with RecordWriter(self._metrics, append=resumed) as self._writer:
            yield


def _lines_before(
    metrics: Path,
    kind: type[Line],
    snapshot: SnapshotHeader,
    path: Path | None,
) -> list[Line]:
    """The lines that existed when the snapshot at `path` was written."""
    if snapshot.lines == 0:
        return []
    lines = list(islice(read_records(metrics, kind), snapshot.lines))
    if len(lines) < snapshot.lines:
        raise DataError(
            f"{metrics}: ends after {len(lines)} lines, {path} was written after "
            f"{snapshot.lines}; {AGAIN}"
        )
    return lines


def _cut(metrics: Path, lines: int) -> None:
    """Truncates the file after this many lines."""
    with writing(metrics), open(metrics, "ab+") as file:
        file.seek(0)
        for _ in range(lines):
            file.readline()
        file.truncate(file.tell())
