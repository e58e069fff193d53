"""Files that are none, and files that are replaced: nothing waits for ever, and nothing is left behind."""

import fcntl
import os
import socket
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from agentcli.records.files import (
    RecordWriter,
    part_of,
    read_json,
    read_records,
    replacing,
    rewriting,
    sha256_file,
    write_atomic,
)
from agentcli.records.regular import is_there, open_regular, read_regular
from agentcli.records.types import Manifest, Task, Tree
from refusal import refused


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


IRREGULAR: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "socket": make_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "directory": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
}
READERS: dict[str, Callable[[Path], object]] = {
    "bytes": read_regular,
    "hash": sha256_file,
    "json": lambda path: read_json(path, Manifest),
    "lines": lambda path: list(read_records(path, Tree)),
}
WRITERS: dict[str, Callable[[Path], object]] = {
    "atomic": lambda path: write_atomic(path, b"x"),
    "new": RecordWriter,
    "append": lambda path: RecordWriter(path, append=True),
}


@pytest.mark.parametrize("kind", IRREGULAR)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_at_once(empty_folder: Path, kind: str, reader: str) -> None:
    # The name of a socket is short.
    path = Path("x")
    IRREGULAR[kind](path)
    refused(lambda: READERS[reader](path), code=3, names="x")


@pytest.mark.parametrize("kind", IRREGULAR)
@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_is_written_to_what_is_no_regular_file(empty_folder: Path, kind: str, writer: str) -> None:
    path = Path("x")
    IRREGULAR[kind](path)
    refused(lambda: WRITERS[writer](path), code=1, names="x", remedy="-o DIR")
    assert os.listdir() == ["x"]


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"], ids=["nul", "surrogate"])
def test_a_name_that_no_file_can_have_is_refused_in_one_line(name: str) -> None:
    refused(lambda: read_regular(Path(name)), code=3, names="name of a file").encode()


def test_a_link_to_a_regular_file_is_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"text")
    (tmp_path / "b").symlink_to("a")
    with open_regular(tmp_path / "b") as file:
        assert file.read() == b"text"


def test_what_a_killed_writer_left_goes_with_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    part_of(path).write_bytes(b"a long text that was never finished")
    write_atomic(path, b"new")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a.json": b"new"}


def test_a_block_that_raises_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, b"old")

    def half() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        half()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a.json": b"old"}


def test_a_second_writer_waits_for_the_first(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    second = threading.Thread(target=write_atomic, args=(path, b"second"))
    with replacing(path) as file:
        file.write(b"first")
        second.start()
        # It cannot have the lock, however long it runs.
        with open(part_of(path), "rb") as rival, pytest.raises(BlockingIOError):
            fcntl.flock(rival, fcntl.LOCK_EX | fcntl.LOCK_NB)
    second.join()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a.json": b"second"}


@pytest.mark.parametrize("fails", [False, True])
def test_a_second_writer_of_records_waits_for_the_first(tmp_path: Path, fails: bool) -> None:
    path = tmp_path / "new" / "a.jsonl"

    def write(task: str, wait: Callable[[], object]) -> None:
        with rewriting(path) as writer:
            writer.write(Task(id=task, world="w", split="s", kind="k"))
            wait()

    second = threading.Thread(target=write, args=("second", bool))

    def wait() -> None:
        second.start()
        with open(part_of(path), "rb") as rival, pytest.raises(BlockingIOError):
            fcntl.flock(rival, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if fails:
            raise KeyError

    with pytest.raises(KeyError) if fails else nullcontext():
        write("first", wait)
    second.join()
    assert os.listdir(path.parent) == ["a.jsonl"]
    assert [task.id for task in read_records(path, Task)] == ["second"]


def test_many_writers_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    texts = [bytes([65 + number]) * 100_000 for number in range(8)]
    writers = [threading.Thread(target=write_atomic, args=(path, text)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert os.listdir(tmp_path) == ["a.json"]
    assert path.read_bytes() in texts


def test_a_link_that_leads_nowhere_is_there_and_a_name_that_cannot_be_looked_for_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "broken").symlink_to("nowhere")
    assert all(is_there(tmp_path / name) for name in ("file", "loop", "broken"))
    assert not any(is_there(tmp_path / name) for name in ("none", "none/x", "file/x"))
    for name in (f"{'long' * 99}", "loop/x"):
        refused(lambda name=name: is_there(tmp_path / name), code=3, names=name)
