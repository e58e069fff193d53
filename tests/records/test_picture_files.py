"""Picture files: written once and whole, checked when they are read."""

import resource
from pathlib import Path

import msgspec
import pytest
from agentcli.records.pictures import (
    MOST_PICTURES,
    Picture,
    fault_of,
    folder_beside,
    keep_pictures,
    name_of,
    read_picture,
    refuse_faulty,
)
from agentcli.records.types import PictureName
from drawn import bad, square, vast
from refusal import refused

FAULTS = ("text", "jpeg", "truncated", "altered", "wide", "bomb", "large")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_picture_is_known(fault: str) -> None:
    assert fault_of(bad(fault)[-1])


def test_good_ones_pass_up_to_the_limit() -> None:
    assert fault_of(square(3)) is None
    assert fault_of(vast(2048)) is None
    refuse_faulty([Picture(square(1))] * MOST_PICTURES)
    refused(lambda: refuse_faulty([Picture(square(1))] * (MOST_PICTURES + 1)), code=4, names=str(MOST_PICTURES))


@pytest.mark.parametrize("length", range(0, len(square(3))))
def test_no_beginning_of_a_picture_is_one(length: int) -> None:
    assert fault_of(square(3)[:length])


def test_a_picture_is_written_once(tmp_path: Path) -> None:
    name = name_of(square(3))
    keep_pictures(tmp_path / "pictures", {name: square(3)})
    (file,) = (tmp_path / "pictures").iterdir()
    assert file.name == f"{name}.png"
    before = file.stat().st_mtime_ns
    keep_pictures(tmp_path / "pictures", {name: square(3)})
    assert file.stat().st_mtime_ns == before
    assert read_picture(tmp_path / "pictures", name) == square(3)


def test_what_a_killed_writer_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".picture.part").write_bytes(square(3)[:9])
    keep_pictures(tmp_path, {name_of(square(3)): square(3)})
    assert [file.name for file in tmp_path.iterdir()] == [f"{name_of(square(3))}.png"]


def test_a_full_disk_leaves_no_part_of_a_picture(tmp_path: Path) -> None:
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9, most[1]))
    try:
        refused(lambda: keep_pictures(tmp_path, {name_of(square(3)): square(3)}), code=1, remedy="--resume")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [None, b"", square(3)[:-3], square(4), bytes(5 * 2**20)])
def test_a_missing_or_other_file_is_refused(tmp_path: Path, damage: bytes | None) -> None:
    name = name_of(square(3))
    if damage is not None:
        (tmp_path / f"{name}.png").write_bytes(damage)
    refused(lambda: read_picture(tmp_path, name), code=3, names=f"{tmp_path}/{name}.png", remedy="copy")


@pytest.mark.parametrize("name", ["../../etc/passwd", "a" * 63, "A" * 64, "a" * 64 + "\n", ""])
def test_a_name_is_a_hash_and_nothing_else(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert([name], type=list[PictureName])


@pytest.mark.parametrize(
    ("trees", "folder"),
    [
        ("runs/x/trees.jsonl", "runs/x/pictures"),
        ("trees.jsonl", "pictures"),
        ("runs/x/evaluation/trees/test.jsonl", "runs/x/pictures"),
        ("evaluation/trees/test.jsonl", "pictures"),
    ],
)
def test_the_folder_lies_beside_the_run(trees: str, folder: str) -> None:
    assert folder_beside(Path(trees)) == Path(folder)
