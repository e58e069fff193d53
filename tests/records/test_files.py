"""Records on disk: round trips, torn lines, and errors that name file, line and field."""

from pathlib import Path

import msgspec
from agentcli.records.files import RecordWriter, derive_seed, read_json, read_records, write_atomic, write_json
from agentcli.records.types import SCHEMA_VERSION, Episode, Manifest, Outcome, Task
from refusal import refused


def task(number: int) -> Task:
    return Task(id=f"t{number}", world="toy", split="train", kind="walk")


def write(path: Path, count: int, append: bool = False) -> None:
    with RecordWriter(path, append=append) as writer:
        for number in range(count):
            writer.write(task(number))


def test_records_come_back_in_order(tmp_path: Path) -> None:
    write(tmp_path / "tasks.jsonl", 3)
    assert [record.id for record in read_records(tmp_path / "tasks.jsonl", Task)] == ["t0", "t1", "t2"]


def test_appending_adds_after_what_is_there(tmp_path: Path) -> None:
    write(tmp_path / "tasks.jsonl", 2)
    write(tmp_path / "tasks.jsonl", 1, append=True)
    assert [record.id for record in read_records(tmp_path / "tasks.jsonl", Task)] == ["t0", "t1", "t0"]


def test_a_torn_last_line_is_owed_and_is_cut_before_appending(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    write(path, 2)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert [record.id for record in read_records(path, Task)] == ["t0"]
    with RecordWriter(path, append=True) as writer:
        writer.write(task(1))
    assert path.read_bytes() == whole


def test_a_torn_only_line_leaves_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'{"id":"t0","wor')
    write(path, 1, append=True)
    assert [record.id for record in read_records(path, Task)] == ["t0"]


def test_a_damaged_middle_line_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    write(path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:10] + b"\n" + lines[2])
    refused(lambda: list(read_records(path, Task)), 3, names="tasks.jsonl:2: ")


def test_unknown_and_mistyped_fields_are_named(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id":"a","world":"w","split":"s","kind":"k","colour":"red"}\n')
    refused(lambda: list(read_records(path, Task)), 3, names=(":1: ", "colour"))
    path.write_text('{"id":7,"world":"w","split":"s","kind":"k"}\n')
    refused(lambda: list(read_records(path, Task)), 3, names="$.id")


def test_another_schema_version_says_so(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    path.write_text('{"schema_version":99,"task":"a"}\n')
    refused(lambda: list(read_records(path, Episode)), 3, names=("schema_version", "99"))


def test_another_schema_version_of_the_same_shape_is_refused_too(tmp_path: Path) -> None:
    write_json(tmp_path / "manifest.json", {"schema_version": 99, "stages": {}})
    refused(
        lambda: read_json(tmp_path / "manifest.json", Manifest),
        3,
        names=(f"agentcli reads {SCHEMA_VERSION}", "schema_version", "99"),
    )


def test_a_missing_file_is_a_data_error(tmp_path: Path) -> None:
    refused(lambda: list(read_records(tmp_path / "none.jsonl", Task)), 3, names="none.jsonl")
    refused(lambda: read_json(tmp_path / "none.json", Task), 3, names="none.json")


def test_atomic_writes_leave_no_part_behind(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a" / "file", b"one")
    write_json(tmp_path / "a" / "file", task(1))
    assert read_json(tmp_path / "a" / "file", Task) == task(1)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["file"]


def test_seeds_differ_by_every_part_and_by_type() -> None:
    seeds = {derive_seed(*parts) for parts in [(1, "a"), (1, "b"), (2, "a"), ("1", "a"), (1, "a", 0), ("1a",)]}
    assert len(seeds) == 6
    assert derive_seed(1, "a") == derive_seed(1, "a")
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_outcomes_are_written_as_their_names() -> None:
    assert msgspec.json.encode(Outcome.SUCCESS) == b'"success"'
