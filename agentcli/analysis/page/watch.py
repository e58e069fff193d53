"""Writes a page once, or repeatedly while its runs continue."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from agentcli.analysis.page.album import Album
from agentcli.analysis.page.pack import KeptSources, PageOptions, packed_index
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.records.scratch import ScratchFolder
from agentcli.reports.page.blocks import BlockStore
from agentcli.reports.page.document import write_page
from agentcli.reports.standing import Progress

PAUSE_SECONDS = 5.0
"""Seconds between two checks of the runs for changes."""
WATCHED = ("manifest.json", "*.jsonl*", "evaluation/*.json", "evaluation/trees/*")
"""The files whose change makes a page out of date."""
Stamps = dict[Path, tuple[int, int]]


def write_pages(
    runs: Sequence[Path],
    options: PageOptions,
    page: Path,
    progress: Progress,
    *,
    watch: bool,
) -> Iterator[Path]:
    """Writes the page and yields its path; with `watch` again after each change.

    It then ends when no loop is running. Trees that are packed already are not read
    again. Raises DataError and WriteError.
    """
    kept: KeptSources = {}
    with ScratchFolder() as folder:
        store = BlockStore(Path(folder))
        album = Album(store)
        while True:
            # Taken before the runs are read: a change meanwhile is not missed.
            stamps = _stamps(runs)
            over = not watch or not any(map(_goes_on, runs))
            index = packed_index(runs, options, store, progress, kept, album)
            name = store.add(msgspec.json.encode(index))
            blocks = index.blocks + [block for _, block in index.album]
            write_page(page, index.title, name, store, blocks)
            yield page
            if over:
                return
            # One line says that the page was written again.
            progress = Progress()
            while _stamps(runs) == stamps:
                time.sleep(PAUSE_SECONDS)


def _goes_on(run: Path) -> bool:
    """Whether a loop was started in this run and has not ended."""
    begun = is_there(run / "settings/run.json") or bool(loop_folders(run))
    return begun and RunDirectory(run).finished("run") is None


def _stamps(runs: Sequence[Path]) -> Stamps:
    """Size and time of every file that a page is made of."""
    stamps: Stamps = {}
    for run in runs:
        for folder in (run, *loop_folders(run)):
            for pattern in WATCHED:
                for file in folder.glob(pattern):
                    # Parts of files come and go.
                    with suppress(FileNotFoundError):
                        status = file.stat()
                        stamps[file] = (status.st_size, status.st_mtime_ns)
    return stamps
