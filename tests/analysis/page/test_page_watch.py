"""Which trees a page shows under which names, and when a watched page is written again."""

import shlex
from pathlib import Path

import pytest
from agentcli.analysis.page import pack
from agentcli.analysis.page.pack import PageOptions, short_names, sources_of, write_pages
from agentcli.records.runs import RunDirectory
from agentcli.reports.standing import Progress
from command_line import agentcli
from pages import rows_of, unpacked, viewed
from refusal import refused
from sample_records import stage_record


def test_names_are_as_long_as_they_must_be() -> None:
    assert list(short_names([Path("a/x"), Path("a/y")]).values()) == ["x", "y"]
    assert list(short_names([Path("a/x"), Path("b/x"), Path("y")]).values()) == ["a/x", "b/x", "y"]
    refused(lambda: short_names([Path("a/x"), Path("a/../a/x")]), names="a/x")


def test_a_loop_brings_its_iterations_and_an_evaluation_its_trees(run: Path, tmp_path: Path) -> None:
    trees = (run / "trees.jsonl").read_bytes()
    loop = tmp_path / "loop"
    for place in ("iteration_000/trees.jsonl", "iteration_001/trees.jsonl", "evaluation/trees/greedy.jsonl"):
        (loop / place).parent.mkdir(parents=True)
        (loop / place).write_bytes(trees)
    names = [source.name for source in sources_of(loop, "loop")]
    assert names == ["loop/evaluation/greedy", "loop/iteration_000", "loop/iteration_001"]


def test_a_watched_page_follows_its_loop_to_the_end(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "PAUSE_SECONDS", 0.01)
    lines = (run / "trees.jsonl").read_bytes().splitlines(keepends=True)
    loop, page = tmp_path / "loop", tmp_path / "page.html"
    (loop / "settings").mkdir(parents=True)
    (loop / "settings/run.json").write_bytes(b"{}")
    growing = loop / "iteration_000/trees.jsonl"
    written = write_pages([loop], PageOptions(methods=[]), page, Progress(), watch=True)
    # The loop has begun, and its first iteration has not.
    assert next(written) == page
    assert rows_of(unpacked(page)["index"]) == []
    growing.parent.mkdir()
    # The second line is torn: its tree is still being written.
    growing.write_bytes(lines[0] + lines[1][:50])
    next(written)
    assert [row["line"] for row in rows_of(unpacked(page)["index"])] == [1]
    growing.write_bytes(b"".join(lines[:3]))
    next(written)
    assert [row["line"] for row in rows_of(unpacked(page)["index"])] == [1, 2, 3]
    record = stage_record()
    record.statistics = {}
    RunDirectory(loop).record_stage("run", record)
    next(written)
    assert list(written) == []


def test_trees_that_did_not_change_are_packed_once(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "PAUSE_SECONDS", 0.01)
    read: list[Path] = []
    original = pack.packed_index.__globals__["read_trees"]
    monkeypatch.setitem(
        pack.packed_index.__globals__, "read_trees", lambda file: [read.append(file), original(file)][1]
    )
    loop = tmp_path / "loop"
    for number in range(2):
        (loop / f"iteration_00{number}").mkdir(parents=True)
        (loop / f"iteration_00{number}/trees.jsonl").write_bytes((run / "trees.jsonl").read_bytes())
    written = write_pages([loop], PageOptions(methods=[]), tmp_path / "page.html", Progress(), watch=True)
    next(written)
    (loop / "iteration_001/trees.jsonl").write_bytes((run / "trees.jsonl").read_bytes()[:-1])
    next(written)
    assert [file.parent.name for file in read] == ["iteration_000", "iteration_001", "iteration_001"]


def test_a_watched_page_shows_the_credit_that_came_later(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "PAUSE_SECONDS", 0.01)
    loop, page = tmp_path / "loop", tmp_path / "page.html"
    folder = loop / "iteration_000"
    folder.mkdir(parents=True)
    (folder / "trees.jsonl").write_bytes((run / "trees.jsonl").read_bytes())
    written = write_pages([loop], PageOptions(methods=[]), page, Progress(), watch=True)
    next(written)
    assert unpacked(page)["index"]["sources"][0]["methods"] == []
    assert agentcli("assign-credit", str(folder), "--method", "grpo", "-q").code == 0
    next(written)
    assert unpacked(page)["index"]["sources"][0]["methods"] == ["grpo"]
    (folder / "credit/grpo.jsonl").unlink()
    next(written)
    assert unpacked(page)["index"]["sources"][0]["methods"] == []


def test_a_folder_with_a_blank_is_one_word_of_the_commands_of_a_page(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    folder.mkdir()
    (folder / "trees.jsonl").write_bytes((run / "trees.jsonl").read_bytes())
    index, _ = viewed(tmp_path / "page.html", str(folder))
    assert shlex.split(index["sources"][0]["path"])[0].endswith("/a run")
