"""The run directory and its manifest."""

import hashlib
import subprocess
from pathlib import Path

import msgspec
import pytest
from agentcli.records import runs
from agentcli.records.runs import (
    RunDirectory,
    git_commit,
    hash_inputs,
    known_hashes,
    link_latest,
    open_hashed,
    versions,
)
from agentcli.records.types import StageRecord
from refusal import refused


def record(seed: int) -> StageRecord:
    return StageRecord(
        command=["agentcli"], settings={}, versions={}, git_commit=None, seed=seed, started="a", finished="b"
    )


def test_stages_are_added_and_replaced_one_by_one(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "x")
    assert run.finished("rollout") is None
    run.record_stage("rollout", record(1))
    run.record_stage("train", record(2))
    run.record_stage("rollout", record(3))
    assert {name: stage.seed for name, stage in run.load_manifest().stages.items()} == {"rollout": 3, "train": 2}
    run.forget_stage("rollout")
    run.forget_stage("sft")
    assert list(run.load_manifest().stages) == ["train"]


def test_credit_is_found_when_there_is_only_one(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    refused(lambda: run.existing_credit(None), 3, remedy="agentcli assign-credit")
    run.credit("grpo").parent.mkdir()
    run.credit("grpo").write_text("")
    assert run.existing_credit(None) == run.credit("grpo")
    run.credit("spark").write_text("")
    refused(lambda: run.existing_credit(None), names="grpo, spark")
    refused(lambda: run.existing_credit("carl"), 3, remedy="--method carl")


def test_trees_that_are_too_few_are_grown_and_those_too_many_are_taken_out(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.record_stage("rollout", msgspec.structs.replace(record(0), counts={"trees": 4}))
    fewer, more = run.lost_trees(3) or "", run.lost_trees(5) or ""
    assert ("--resume" in fewer, "--resume" in more, "--overwrite" in more) == (True, False, True)
    assert run.lost_trees(4) is None


def test_evaluations_of_weights_that_were_trained_anew_are_outdated(tmp_path: Path) -> None:
    """Those of another model are not, and what was evaluated afterwards is not either."""
    run = RunDirectory(tmp_path)
    of_itself, of_another = str(run.checkpoint / "model.safetensors"), str(tmp_path / "other" / "model.safetensors")
    for label, inputs, started in (("old", of_itself, "1"), ("other", of_another, "1"), ("new", of_itself, "3")):
        evaluated = msgspec.structs.replace(record(0), inputs={inputs: "0"}, started=started)
        run.record_stage(f"evaluation/{label}", evaluated)
    assert run.outdated() == []
    run.record_stage("train", msgspec.structs.replace(record(0), started="2"))
    assert run.outdated() == ["old"]


def test_latest_names_the_newest_run_of_a_runs_folder_only(tmp_path: Path) -> None:
    for name in ("runs/a", "runs/b", "elsewhere/c"):
        (tmp_path / name).mkdir(parents=True)
        link_latest(tmp_path / name)
    assert (tmp_path / "runs" / "latest").resolve() == tmp_path / "runs" / "b"
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["a", "b", "latest"]
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["c"]


def test_inputs_are_hashed_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "weights").write_bytes(b"1")
    (tmp_path / "trees").write_bytes(b"2")
    hashes = hash_inputs([tmp_path / "m", tmp_path / "trees"])
    assert list(hashes) == [str(tmp_path / "m" / "weights"), str(tmp_path / "trees")]
    assert hashes[str(tmp_path / "trees")] == "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35"


def test_versions_are_those_of_what_a_result_may_depend_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core, a world's extra, and a package that adds a plug-in; what tests need is left out."""
    about = tmp_path / "newton-2.5.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: newton\nVersion: 2.5\n")
    (about / "entry_points.txt").write_text("[agentcli.environments]\napple = newton:Apple\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    installed = versions()
    assert installed["newton"] == "2.5"
    assert {"agentcli", "python", "torch", "transformers", "textworld"} <= installed.keys()
    assert not {"pytest", "ruff", "wandb"} & installed.keys()


def test_the_commit_is_that_of_the_checkout_and_none_where_git_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "__file__", str(tmp_path / "agentcli" / "records" / "runs.py"))
    assert git_commit() is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "a"], check=True)
    commit = git_commit()
    assert commit is not None
    assert len(commit) == 40
    monkeypatch.setenv("PATH", "/nonexistent")
    assert git_commit() is None


@pytest.mark.parametrize("size", [0, 5, 3 << 20])
def test_a_file_that_was_read_to_its_end_is_hashed(tmp_path: Path, size: int) -> None:
    file = tmp_path / "trees.jsonl"
    file.write_bytes(b"line\n" * (size // 5))
    with open_hashed(file) as opened:
        assert opened.read() == file.read_bytes()
        opened.read()
    (known,) = known_hashes([file]).values()
    assert known == hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("change", [False, True], ids=["not read to its end", "changed meanwhile"])
def test_a_file_that_was_not_read_as_it_is_has_no_hash_yet(tmp_path: Path, change: bool) -> None:
    file = tmp_path / "trees.jsonl"
    file.write_bytes(b"line\n" * (1 << 20))
    with open_hashed(file) as opened:
        opened.readline()
        if change:
            with file.open("ab") as more:
                more.write(b"more\n")
            opened.read()
    assert known_hashes([file]) == {}
    assert hash_inputs([file]) == {str(file): hashlib.sha256(file.read_bytes()).hexdigest()}
