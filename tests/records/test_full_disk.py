"""A disk that fills up and places that cannot be written: one line with file and reason, nothing torn or temporary left.

The full disk is a limit on the size of a file, set in a process of its own; there the kernel says "File too large" where a
full disk says "No space left on device".
"""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from agentcli.errors import AgentCliError, WriteError
from agentcli.records.files import RecordWriter, read_records, write_atomic, write_json
from agentcli.records.types import Task
from agentcli.reports.page.document import BlockStore
from refusal import refused

FULL = "cannot be written (File too large); free some and go on with --resume"
LIMITED = """
import resource, sys
from pathlib import Path
from agentcli.errors import WriteError
from agentcli.records.files import RecordWriter, write_atomic
from agentcli.records.types import Task

path, limit, what = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    if what == "records":
        with RecordWriter(path) as writer:
            for number in range(10_000):
                writer.write(Task(id=f"t{number}" * 30, world="w", split="s", kind="k"))
    else:
        write_atomic(path, b"x" * 2 * limit)
except WriteError as error:
    print(error)
"""


def limited(path: Path, what: str, limit: int = 5000) -> str:
    """What a process says that may write no file longer than `limit` bytes."""
    words = [sys.executable, "-c", LIMITED, str(path), str(limit), what]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def task(number: int) -> Task:
    return Task(id=f"t{number}" * 30, world="w", split="s", kind="k")


def test_a_full_disk_leaves_whole_records_and_writing_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    assert limited(path, "records") == f"{path}: {FULL}\n"
    found = list(read_records(path, Task))
    assert found == [task(number) for number in range(len(found))]
    assert len(found) > 10
    size = path.stat().st_size
    with RecordWriter(path, append=True) as writer:
        assert path.stat().st_size == size, "there was a torn record"
        writer.write(task(len(found)))
    assert list(read_records(path, Task)) == [*found, task(len(found))]


def test_a_full_disk_leaves_the_file_that_was_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text("old", encoding="utf-8")
    assert limited(path, "atomic") == f"{path}: {FULL}\n"
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def on_full_disk(path: Path) -> RecordWriter:
    """A writer whose file is on a disk without room from now on."""
    writer = RecordWriter(path)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._file.fileno())
    os.close(full)
    return writer


def test_no_space_is_said_to_be_no_space(tmp_path: Path) -> None:
    path = tmp_path / "x"
    writer = on_full_disk(path)
    with pytest.raises(WriteError) as caught:
        writer.write(task(1))
    assert str(caught.value).startswith(f"{path}: cannot be written ")
    assert "(No space left on" in str(caught.value)
    assert str(caught.value).endswith(" --resume")
    assert isinstance(caught.value, AgentCliError)
    assert caught.value.exit_code == 1


def test_a_failed_close_does_not_hide_why_writing_failed(tmp_path: Path) -> None:
    def write() -> None:
        with on_full_disk(tmp_path / "x") as writer:
            writer.write(task(1))

    refused(write, 1, str(tmp_path / "x"), remedy="--resume")


def test_a_place_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    for path in (
        tmp_path / "file" / "trees.jsonl",
        tmp_path / "file" / "run" / "trees.jsonl",
        tmp_path / "folder",
        tmp_path / ("x" * 300),
    ):
        for attempt in (RecordWriter, partial(RecordWriter, append=True), partial(write_json, value=task(1))):
            refused(partial(attempt, path), 1, str(path), remedy="-o DIR")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert list((tmp_path / "folder").iterdir()) == []


def test_an_interrupted_atomic_write_leaves_no_part_behind(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_atomic(tmp_path / "file", "text")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_whole_last_line_without_its_newline_is_kept_when_appending(tmp_path: Path) -> None:
    """The reader takes it for a record, so a resumed stage must not cut it off."""
    path = tmp_path / "tasks.jsonl"
    with RecordWriter(path) as writer:
        writer.write(task(0))
        writer.write(task(1))
    path.write_bytes(path.read_bytes()[:-1])
    assert list(read_records(path, Task)) == [task(0), task(1)]
    with RecordWriter(path, append=True) as writer:
        writer.write(task(2))
    assert list(read_records(path, Task)) == [task(0), task(1), task(2)]


def test_every_cut_of_a_file_is_mended(tmp_path: Path) -> None:
    """What the reader made of it before, and then the new record: nothing lost, nothing that nobody wrote."""
    path, whole = (
        tmp_path / "tasks.jsonl",
        [Task(id=str(number), world="w", split="s", kind="k") for number in range(3)],
    )
    with RecordWriter(path) as writer:
        writer.write(whole[0])
        writer.write(whole[1])
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        before = list(read_records(path, Task))
        with RecordWriter(path, append=True) as writer:
            writer.write(whole[2])
        assert list(read_records(path, Task)) == [*before, whole[2]], size
        path.unlink()


def test_a_text_that_utf8_cannot_hold_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    with RecordWriter(path) as writer:
        refused(
            lambda: writer.write(Task(id="\ud800", world="w", split="s", kind="k")), 3, names=("tasks.jsonl", "UTF-8")
        )
        writer.write(task(1))
    assert list(read_records(path, Task)) == [task(1)]


def test_a_block_of_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    refused(lambda: BlockStore(tmp_path / "none").add(b"[]"), 1, names=str(tmp_path / "none"))
