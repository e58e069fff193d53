"""Writes a page once, or again and again while its runs go on."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from agentcli.analysis.page.pack import PackedSource, PageOptions, packed_index
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.reports.page.blocks import BlockStore
from agentcli.reports.page.document import write_page
from agentcli.reports.standing import Progress

PAUSE_SECONDS = 5.0
"""Between two looks at the runs."""
WATCHED = ("manifest.json", "*.jsonl*", "evaluation/*.json", "evaluation/trees/*")
"""The files whose change makes a page out of date."""
Kept = dict[tuple[str, int, int], PackedSource]
Stamps = dict[Path, tuple[int, int]]


def write_once(
    runs: Sequence[Path], options: PageOptions, page: Path, progress: Progress
) -> Iterator[Path]:
    """Writes the page and yields its path. Raises DataError and WriteError."""
    with TemporaryDirectory() as folder:
        yield _write(runs, options, page, progress, BlockStore(Path(folder)), {})


def write_whenever_changed(
    runs: Sequence[Path], options: PageOptions, page: Path, progress: Progress
) -> Iterator[Path]:
    """Yields the page each time that it was written, until no loop goes on.

    Trees that are packed already are not read again.
    """
    kept: Kept = {}
    with TemporaryDirectory() as folder:
        store = BlockStore(Path(folder))
        while True:
            stamps = _stamps(runs)
            over = not any(map(_goes_on, runs))
            yield _write(runs, options, page, progress, store, kept)
            if over:
                return
            while _stamps(runs) == stamps:
                time.sleep(PAUSE_SECONDS)


def _write(
    runs: Sequence[Path],
    options: PageOptions,
    page: Path,
    progress: Progress,
    store: BlockStore,
    kept: Kept,
) -> Path:
    index = packed_index(runs, options, store, progress, kept)
    name = store.add(msgspec.json.encode(index))
    write_page(page, index.title, name, store, index.blocks)
    return page


def _goes_on(run: Path) -> bool:
    """Whether a loop was begun there and has not ended."""
    return bool(loop_folders(run)) and RunDirectory(run).finished("run") is None


def _stamps(runs: Sequence[Path]) -> Stamps:
    """Size and time of every file that a page is made of."""
    stamps: Stamps = {}
    for run in runs:
        for folder in (run, *loop_folders(run)):
            for pattern in WATCHED:
                for file in folder.glob(pattern):
                    status = file.stat()
                    stamps[file] = (status.st_size, status.st_mtime_ns)
    return stamps
