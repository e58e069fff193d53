"""Shards of a panel, sampled apart and merged, are the run that one command would have written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.exploration.settings import evaluation_class
from agentcli.records.files import read_json, read_records, write_json
from agentcli.records.settings import Settings
from agentcli.records.shards import Shard
from agentcli.records.types import Manifest, Tree
from agentcli.stages.merge import perform, plan
from agentcli.stages.panels import interleaved
from agentcli.stages.session import Invocation, carry_out
from bad_input_runs import Damage, copy, edit_lines, remove, torn_inside, write
from command_line import agentcli, succeeded
from grown_runs import toy
from refusal import refused
from staged import evaluate, pass_at_k, rollout


def part(settings: Settings, shard: str | None) -> Settings:
    return msgspec.structs.replace(settings, environment=msgspec.structs.replace(settings.environment, shard=shard))


def sample(stage: Callable[..., Any], settings: Settings, folder: Path, count: int) -> list[Path]:
    """The whole in folder/whole; its shards, in an order that is not the panel's."""
    stage(settings, folder / "whole", Invocation(["agentcli"]), model=None)
    runs = []
    for index in range(count, 0, -1):
        runs.append(folder / str(index))
        stage(part(settings, f"{index}/{count}"), runs[-1], Invocation(["agentcli"]), model=None)
    return runs


def merge(runs: list[Path], out: Path) -> None:
    for one in plan(runs, out):
        carry_out(one, perform, Invocation(["agentcli", "merge"]))


def same(folder: Path, stage: str, *files: str) -> None:
    """Whole and merged have equal bytes, and equal manifests but for times and the command line."""
    for file in files:
        assert (folder / "merged" / file).read_bytes() == (folder / "whole" / file).read_bytes(), file
    whole, merged = (read_json(folder / name / "manifest.json", Manifest).stages[stage] for name in ("whole", "merged"))
    for name in ("settings", "seed", "inputs", "panel", "panel_name", "counts", "ledger", "statistics"):
        assert getattr(merged, name) == getattr(whole, name), name


@pytest.mark.parametrize("count", [2, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 5, 12))])
@pytest.mark.parametrize("method", ["chain", "spark"])
def test_merged_shards_are_the_unsharded_rollout(tmp_path: Path, method: str, count: int) -> None:
    runs = sample(rollout, toy(method), tmp_path, count)
    merge(runs, tmp_path / "merged")
    same(tmp_path, "rollout", "trees.jsonl", "settings/rollout.json")
    seconds = [line.task for line in read_records(tmp_path / "merged/seconds.jsonl", _Timed)]
    assert seconds == [f"train/{index}" for index in range(12)]


class _Timed(msgspec.Struct):
    task: str


def test_the_iterations_slice_is_sharded_too(tmp_path: Path) -> None:
    settings = toy()
    settings.rollout.tasks_per_step = 5
    settings.rollout.iteration = 1
    merge(sample(rollout, settings, tmp_path, 2), tmp_path / "merged")
    same(tmp_path, "rollout", "trees.jsonl")


@pytest.mark.parametrize("keep", ["all", "failed", "none"])
@pytest.mark.parametrize("stage", [evaluate, pytest.param(pass_at_k, marks=pytest.mark.slow)])
def test_merged_shards_are_the_unsharded_evaluation(tmp_path: Path, stage: Callable[..., Any], keep: str) -> None:
    wanted = evaluation_class("chain")(split="test", samples=3, n=4, k=2, trees=keep)
    settings = msgspec.structs.replace(toy(), evaluation=wanted)
    label = "test" if stage is evaluate else "pass-at-k-test"
    merge(sample(stage, settings, tmp_path, 3), tmp_path / "merged")
    files = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole/evaluation").rglob("*.json*")]
    assert len(files) == (2 if keep == "none" else 3)
    same(tmp_path, f"evaluation/{label}", *map(str, files))
    assert (tmp_path / "merged/evaluation/trees").exists() == (keep != "none")


def test_a_shard_resumes_by_itself_and_the_merged_run_as_the_whole(tmp_path: Path) -> None:
    runs = sample(rollout, toy(), tmp_path, 2)
    trees = runs[0] / "trees.jsonl"
    trees.write_bytes(trees.read_bytes()[:4000])
    (runs[0] / "manifest.json").unlink()
    rollout(part(toy(), "2/2"), runs[0], Invocation(["agentcli"], resume=True), model=None)
    merge(runs, tmp_path / "merged")
    same(tmp_path, "rollout", "trees.jsonl")
    merged = tmp_path / "merged/trees.jsonl"
    whole = merged.read_bytes()
    merged.write_bytes(whole[:4000])
    rollout(toy(), tmp_path / "merged", Invocation(["agentcli"], resume=True), model=None)
    assert merged.read_bytes() == whole


def test_every_task_is_in_one_shard() -> None:
    for tasks in ("a", "abc", "abcdefg"):
        for count in range(1, len(tasks) + 1):
            parts = [Shard(index, count).part(tasks) for index in range(1, count + 1)]
            assert "".join(interleaved(parts)) == tasks
            assert max(map(len, parts)) - min(map(len, parts)) <= 1


WORDS = ("rollout", "--env", "toy_world:ToyWorld", "--policy", "random", "--max-steps", "5", "--leaves", "2", "-q")
"""Of eight tasks."""


@pytest.fixture
def shards(empty_folder: Path) -> None:
    """Runs 1 and 2 of two shards, in the current folder."""
    for index in (1, 2):
        sampled(str(index), "--shard", f"{index}/2")


def sampled(out: str, *words: str) -> None:
    succeeded(*WORDS, *words, "-o", out)


def test_a_run_is_not_merged_into_itself_whatever_it_is_called(empty_folder: Path) -> None:
    """A name below runs/ may be left without runs/."""
    for index in (1, 2):
        sampled(f"runs/p{index}", "--shard", f"{index}/2")
    trees = Path("runs/p1/trees.jsonl").read_bytes()
    refused(agentcli("merge", "p1", "p2", "-o", "runs/p1", "--overwrite"), 2, names="runs/p1", remedy="-o DIR")
    assert Path("runs/p1/trees.jsonl").read_bytes() == trees


def test_a_shard_of_an_evaluation_is_shown_and_read_again(empty_folder: Path) -> None:
    words = ("eval", "--env", "toy_world:ToyWorld", "--policy", "random", "--max-steps", "5", "--shard", "1/2")
    succeeded(*words, "-o", "half")
    assert agentcli("validate", "half").code == 0


@pytest.mark.usefixtures("shards")
def test_shards_that_do_not_make_one_run_are_refused() -> None:
    sampled("whole")
    sampled("seed", "--shard", "2/2", "--seed", "1")
    sampled("leaves", "--shard", "2/2", "--leaves", "3")
    sampled("panel", "--shard", "2/2", "--tasks", "6")
    sampled("third", "--shard", "2/3")
    cases: dict[tuple[str, ...], tuple[tuple[str, ...], str]] = {
        ("1",): (("shard 2/2",), "--shard 2/2"),
        ("2", "1", "2"): (("shard 2/2", "twice"), "give it once"),
        ("1", "whole"): (("whole",), "--shard"),
        ("1", "seed"): (("seed: other settings than 1: seed was 0, now 1",), "sample it again"),
        ("1", "leaves"): (("leaves", "rollout.leaves was 2, now 3"), "sample it again"),
        ("1", "panel"): (("1/2", "panel"), "merge shards of one panel"),
        ("1", "third"): (("1/2", "2/3"), "merge shards of one panel"),
    }
    for runs, (names, remedy) in cases.items():
        refused(agentcli("merge", *runs, "-o", "merged", "-q"), names=names, remedy=remedy)
        assert not Path("merged").exists()
    refused(agentcli("merge", "1", "2", "-o", "1", "-q"), names=("1",), remedy="-o")
    refused(agentcli("merge", "1", "2", "-o", "whole", "-q"), names=("whole/trees.jsonl",), remedy="--overwrite")


@pytest.mark.usefixtures("shards")
def test_a_shard_that_has_not_ended_or_was_damaged_is_refused() -> None:
    trees = Path("2/trees.jsonl")
    whole = trees.read_bytes()
    trees.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    refused(agentcli("merge", "1", "2", "-o", "merged", "-q"), code=3, names=("2/trees.jsonl",), remedy="--resume")
    trees.write_bytes(whole)
    manifest = Path("2/manifest.json")
    ended = read_json(manifest, Manifest)
    manifest.unlink()
    refused(agentcli("merge", "1", "2", "-o", "merged", "-q"), names=("2",), remedy="--resume")
    damaged = msgspec.convert(msgspec.to_builtins(ended), Manifest)
    damaged.stages["rollout"].statistics["shard"] = {"shard": "2/2"}
    write_json(manifest, damaged)
    refused(agentcli("merge", "1", "2", "-o", "merged", "-q"), code=3, names=("2/manifest.json", "statistics.shard"))
    write_json(manifest, ended)
    answer = agentcli("merge", "1", "2", "-o", "merged", "-q")
    assert (answer.code, answer.stdout) == (0, "merged\n"), answer
    assert [tree.task.id for tree in read_records(Path("merged/trees.jsonl"), Tree)] == [f"train/{n}" for n in range(8)]


def doubled(lines: list[bytes]) -> list[bytes]:
    return [*lines, lines[0]]


def no_tree(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b'"parent":0', b'"parent":7777'), *lines[1:]]


def no_limit(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b'"leaves": 2', b'"leaves": "x"') for line in lines]


@pytest.mark.parametrize(
    ("file", "damage", "line"),
    [
        ("trees.jsonl", edit_lines, doubled),
        ("trees.jsonl", edit_lines, no_tree),
        ("trees.jsonl", edit_lines, torn_inside),
        ("trees.jsonl", edit_lines, lambda lines: lines[::-1]),
        ("seconds.jsonl", write, b"nothing\n"),
        ("manifest.json", edit_lines, no_limit),
    ],
    ids=["a tree twice", "no tree", "torn", "order", "seconds", "settings"],
)
@pytest.mark.usefixtures("shards")
def test_a_damaged_file_of_a_shard_is_named_and_no_records_are_written(
    file: str, damage: Callable[[str, Any], Damage], line: Any
) -> None:
    damage(f"2/{file}", line)()
    refused(agentcli("merge", "1", "2", "-o", "merged", "-q"), code=3, names=f"2/{file}")
    assert not Path("merged/trees.jsonl").exists()


@pytest.mark.usefixtures("shards")
def test_trees_without_seconds_are_merged() -> None:
    edit_lines("1/seconds.jsonl", lambda lines: lines[1:])()
    remove("2/seconds.jsonl")()
    succeeded("merge", "1", "2", "-o", "merged")
    assert len(Path("merged/trees.jsonl").read_bytes().splitlines()) == 8
    assert len(Path("merged/seconds.jsonl").read_bytes().splitlines()) == 3


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("test.jsonl", lambda path: edit_lines(path, doubled)),
        ("trees/test.jsonl", lambda path: edit_lines(path, doubled)),
        ("trees/test.jsonl", lambda path: edit_lines(path, torn_inside)),
        ("trees/test.jsonl", lambda path: edit_lines(path, lambda lines: lines[1:])),
        ("trees/test.jsonl", lambda path: copy("1/evaluation/trees/test.jsonl", path)),
        ("trees/test.jsonl", remove),
    ],
    ids=["an episode twice", "a tree twice", "torn", "a tree less", "another shard's", "none"],
)
def test_a_damaged_file_of_an_evaluations_shard_is_named(
    file: str, damage: Callable[[str], Damage], empty_folder: Path
) -> None:
    for index in (1, 2):
        succeeded("eval", *WORDS[1:6], "5", "--shard", f"{index}/2", "-q", "-o", str(index))
    damage(f"2/evaluation/{file}")()
    refused(agentcli("merge", "1", "2", "-o", "merged", "-q"), code=3, names=f"2/evaluation/{file}")
    assert not Path("merged/evaluation").exists()


@pytest.mark.usefixtures("shards")
def test_what_is_no_shard_is_named() -> None:
    refused(agentcli("merge", "1", "nowhere", "-o", "merged", "-q"), code=3, names="nowhere: no such run directory")
    refused(agentcli("merge", "1", "2/trees.jsonl", "-o", "merged", "-q"), code=3, names="2/trees.jsonl")
    write("lora/checkpoint/adapter_config.json", "{}")()
    refused(
        agentcli("merge", "1", "lora", "-o", "merged", "-q"), names="lora", remedy="agentcli export lora --to model"
    )


@pytest.mark.parametrize(
    ("words", "names", "remedy"),
    [
        ((*WORDS, "--shard", "3/2"), ("environment.shard", "3/2"), "I/N"),
        ((*WORDS, "--shard", "0/2"), ("environment.shard", "0/2"), "I/N"),
        ((*WORDS, "--shard", "1"), ("environment.shard", "1"), "I/N"),
        ((*WORDS, "--shard", "9/9"), ("environment.shard", "8 tasks"), "fewer shards"),
        (
            (*WORDS, "--shard", "1/2", "--budget", "leaves=9"),
            ("environment.shard", "leaves=9"),
            "leave one of the two out",
        ),
        (
            ("demos", *WORDS[1:5], "--set", "environment.shard=1/2", "-q"),
            ("environment.shard", "demos"),
            "leave it out",
        ),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["for good", "dry"])
def test_a_shard_that_cannot_be_walked_is_refused(
    words: tuple[str, ...], names: tuple[str, ...], remedy: str, dry: tuple[str, ...], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    refused(agentcli(*words, *dry, "-o", str(out)), names=names, remedy=remedy)
    assert not out.exists()


@pytest.mark.usefixtures("shards")
def test_another_shard_does_not_go_on_with_this_one() -> None:
    words = ("--shard", "1/2", "-o", "2", "--resume")
    refused(agentcli(*WORDS, *words), names=("environment.shard was '2/2', now '1/2'",), remedy="--overwrite")
