"""The checksums in a manifest: what they are of, which change they find, and what is read for them."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from agentcli.records.checksums import BLOCK, Check, checksums, recorded
from agentcli.records.files import RecordWriter, read_json, read_line, read_records, sha256_file, write_json
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Credit, Manifest, Panel
from refusal import refused
from sample_records import credit, panel, stage_record, tree

ROWS = 4


def record(run: RunDirectory, *files: Path) -> None:
    """The manifest of a stage that wrote these files."""
    entry = stage_record()
    entry.outputs = run.checksums(files)
    run.record_stage("credit/grpo", entry)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Credit, a panel and a binary file of three blocks, with their checksums."""
    run = RunDirectory(tmp_path / "run")
    with RecordWriter(run.credit("grpo")) as writer:
        for number in range(ROWS):
            writer.write(credit(number))
    write_json(run.path / "panel.json", panel())
    run.optimizer.write_bytes(bytes(2 * BLOCK + 5))
    record(run, run.credit("grpo"), run.path / "panel.json", run.optimizer)
    return run


def put(path: Path, place: int, byte: bytes) -> None:
    with path.open("rb+") as file:
        file.seek(place)
        file.write(byte)


def other_line(path: Path, number: int) -> None:
    """Another weight on one line."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace(b'"weight":1.0', b'"weight":2.0', 1)
    path.write_bytes(b"".join(lines))


def test_what_was_written_is_read(run: RunDirectory) -> None:
    assert len(list(read_records(run.credit("grpo"), Credit))) == ROWS
    assert read_json(run.path / "panel.json", Panel) == panel()
    for path in (run.credit("grpo"), run.optimizer):
        assert len(sha256_file(path)) == 64


@pytest.mark.parametrize("number", [1, ROWS])
def test_a_changed_line_is_named_and_those_before_it_are_read(run: RunDirectory, number: int) -> None:
    path = run.credit("grpo")
    other_line(path, number)
    records = read_records(path, Credit)
    assert [next(records) for _ in range(number - 1)] == [credit(before) for before in range(number - 1)]
    refused(lambda: next(records), 3, f"{path}:{number}: ", "--overwrite")
    refused(lambda: sha256_file(path), 3, f"{path}:{number}: ")


def test_one_line_is_read_whatever_happened_to_the_others(run: RunDirectory) -> None:
    path = run.credit("grpo")
    other_line(path, 2)
    assert read_line(path, 3, Credit) == credit(2)
    refused(lambda: read_line(path, 2, Credit), 3, f"{path}:2: ")


def test_lines_that_were_added_or_changed_places_are_refused(run: RunDirectory) -> None:
    path = run.credit("grpo")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[0]]))
    refused(lambda: list(read_records(path, Credit)), 3, f"{path}:{ROWS + 1}: ")
    path.write_bytes(b"".join(reversed(lines)))
    refused(lambda: list(read_records(path, Credit)), 3, f"{path}:1: ")


def test_a_changed_byte_is_named_by_its_block(run: RunDirectory) -> None:
    put(run.optimizer, 2 * BLOCK + 1, b"\1")
    refused(lambda: sha256_file(run.optimizer), 3, (f"{run.optimizer}: ", f"byte {2 * BLOCK}"))


def test_a_changed_line_of_a_single_record_is_named(run: RunDirectory) -> None:
    path = run.path / "panel.json"
    text = path.read_text(encoding="utf-8")
    line = text[: text.index('"name"')].count("\n") + 1
    path.write_text(text.replace('"L0"', '"L1"', 1), encoding="utf-8")
    refused(lambda: read_json(path, Panel), 3, f"{path}:{line}: ")


def test_trees_may_be_joined_and_cut_by_hand(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with RecordWriter(run.trees) as writer:
        writer.write(tree())
    write_json(tmp_path / "settings" / "rollout.json", {})
    assert list(run.checksums([run.trees, run.checkpoint, run.begun("rollout")])) == ["settings/rollout.json"]


@pytest.mark.parametrize("text", ["[]", "{", '{"stages": {"credit/grpo": {"outputs": 3}}}', '{"stages": 4}'])
def test_a_manifest_of_another_program_says_nothing(run: RunDirectory, text: str) -> None:
    run.manifest_path.write_text(text, encoding="utf-8")
    assert recorded(run.credit("grpo")) is None
    assert len(list(read_records(run.credit("grpo"), Credit))) == ROWS


def test_a_file_that_is_written_again_while_it_is_read_is_not_refused(run: RunDirectory) -> None:
    """The manifest was read before the stage began to write."""
    path = run.credit("grpo")
    check = Check(path)
    refused(lambda: check.piece(1, b"other"), 3, f"{path}:1: ")
    run.forget_stage("credit/grpo")
    check.piece(1, b"other")
    check.piece(ROWS + 1, b"more")


def test_a_stage_that_takes_over_a_file_removes_the_checksums_of_another(run: RunDirectory) -> None:
    run.forget_stage("train", [run.optimizer, run.checkpoint])
    assert run.finished("credit/grpo") is not None
    assert recorded(run.optimizer) is None
    assert recorded(run.credit("grpo")) is not None


def test_a_file_is_opened_once_to_be_read_and_checked(run: RunDirectory) -> None:
    """And its manifest once, however many lines the file has."""
    opened = Counter[Path]()
    watching = True

    def hook(event: str, values: tuple[Any, ...]) -> None:
        if watching and event == "open" and isinstance(values[0], str | Path):
            opened[Path(values[0])] += 1

    sys.addaudithook(hook)
    assert len(list(read_records(run.credit("grpo"), Credit))) == ROWS
    watching = False
    assert [opened[path] for path in (run.credit("grpo"), run.manifest_path)] == [1, 1]


def test_a_checksum_is_eight_digits_a_line(run: RunDirectory) -> None:
    assert len(checksums(run.credit("grpo"))) == 8 * ROWS
    assert len(checksums(run.optimizer)) == 8 * 3
    assert (
        checksums(run.credit("grpo"))
        == read_json(run.manifest_path, Manifest).stages["credit/grpo"].outputs["credit/grpo.jsonl"]
    )
