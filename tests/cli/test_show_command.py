"""`agentcli show` as a user meets it."""

import contextlib
import json
import shutil
from pathlib import Path

import msgspec
import pytest
from agentcli import read_trees
from agentcli.records.files import RecordWriter
from command_line import agentcli, chained, files_below, succeeded
from refusal import refused

SETTINGS = """
environment: {name: toy_world:ToyWorld, max_steps: 6, options: {tasks: 4}}
prompt: {style: compact}
policy: {kind: random}
rollout: {leaves: 3}
"""
SPARK = (
    "--set",
    "rollout.method=spark",
    "--branch",
    "fixed:1",
    "--set",
    "rollout.branching=4",
    "--roots",
    "1",
    "--leaves",
    "4",
)
"""One root, whose first step has four continuations."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rollouts, one with credit and an evaluation."""
    sampling = ("-c", "toy.yaml", "-q")
    commands = [
        ("rollout", *sampling, "-o", "runs/a"),
        ("rollout", *sampling, "--seed", "1", "-o", "runs/b"),
        ("assign-credit", "runs/a", "--method", "grpo", "-q"),
        ("eval", "runs/a", *sampling, "--label", "train", "--split", "train"),
    ]
    return chained(tmp_path_factory.mktemp("shown") / "folder", SETTINGS, commands)


@pytest.fixture(autouse=True)
def inside(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)


def test_runs_are_listed() -> None:
    answer = succeeded("show")
    assert "runs/a" in answer.stdout
    assert "runs/b" in answer.stdout
    assert "latest" not in answer.stdout
    runs = [json.loads(line) for line in agentcli("show", "--json").stdout.splitlines()]
    assert {run["path"]: run["stages"] for run in runs} == {
        "runs/b": ["rollout"],
        "runs/a": ["rollout", "credit/grpo", "evaluation/train"],
    }
    assert all(run["success"]["measured_on"] in ("rollout", "train") for run in runs)


@pytest.mark.parametrize("command", ["show", "view"])
def test_trees_that_were_lost_after_the_rollout_ended_are_missed(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree("runs/a", tmp_path / "torn")
    monkeypatch.chdir(tmp_path)
    assert "warning" not in agentcli(command, "torn").stderr
    trees = Path("torn/trees.jsonl")
    trees.write_bytes(trees.read_bytes()[:-30])
    answer = succeeded(command, "torn", *(["--overwrite"] if command == "view" else []))
    for part in ("warning: torn/trees.jsonl: ", "3 trees, not the 4 "):
        assert part in answer.stderr


def test_a_run_shows_what_it_holds() -> None:
    answer = succeeded("show", "runs/a")
    for word in ("rollout", "credit/grpo", "evaluation/train", "random", "of 3"):
        assert word in answer.stdout
    held = json.loads(agentcli("show", "runs/a", "--json").stdout)
    assert [tree["success"] for tree in held["trees"]] == sorted(tree["success"] for tree in held["trees"])
    assert len(held["trees"]) == 4


def test_where_forks_fall_is_shown_and_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "forks %" not in agentcli("show", "runs/a").stdout, "chain does not fork"
    shutil.copy("toy.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    answer = agentcli("rollout", "-c", "toy.yaml", *SPARK, "-o", "runs/spark")
    assert "after the first step" in answer.stderr
    held = json.loads(agentcli("show", "runs/spark", "--json").stdout)
    recorded = json.loads(Path("runs/spark/manifest.json").read_text(encoding="utf-8"))["stages"]["rollout"]
    assert held["forks_by_depth"] == recorded["statistics"]["forks_by_depth"] == [1.0]
    assert sum(len(tree["fork_depths"]) for tree in held["trees"]) == recorded["ledger"]["forks"]
    assert "steps before them: 1: 100.0; median 1" in agentcli("show", "runs/spark").stdout
    assert "fork_depth 1" in answer.stdout + answer.stderr


def test_a_tree_is_drawn_with_its_advantages() -> None:
    answer = succeeded("show", "runs/a", "2")
    assert "advantages of grpo" in answer.stdout
    assert answer.stdout.count("trajectory ") == 3
    shown = json.loads(agentcli("show", "runs/a", "2", "--json").stdout)
    assert (shown["line"], shown["credit"]) == (2, "grpo")


def test_the_same_task_in_two_runs() -> None:
    answer = succeeded("show", "runs/a", "1", "--beside", "runs/b")
    assert "runs/a/trees.jsonl:1" in answer.stdout
    assert "runs/b/trees.jsonl:1" in answer.stdout


def test_the_same_task_in_two_runs_is_found_by_a_name_that_is_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RecordWriter(tmp_path / "runs/x/trees.jsonl") as writer:
        for name, tree in zip("2134", read_trees(Path("runs/a")), strict=True):
            writer.write(msgspec.structs.replace(tree, task=msgspec.structs.replace(tree.task, id=name)))
    monkeypatch.chdir(tmp_path)
    answer = succeeded("show", "runs/x", "1", "--beside", "runs/x")
    assert answer.stdout.count("runs/x/trees.jsonl:1") == 2


def test_the_trees_of_an_evaluation() -> None:
    listed = json.loads(agentcli("show", "runs/a", "--evaluation", "train", "--json").stdout)
    assert [tree["trajectories"] for tree in listed["trees"]] == [1, 1, 1, 1]
    answer = succeeded("show", "runs/a", "2", "--evaluation", "train")
    assert "runs/a/evaluation/trees/train.jsonl:2" in answer.stdout
    assert "advantages" not in answer.stdout


def test_a_trajectory_as_a_chat() -> None:
    answer = succeeded("show", "runs/a", "1", "--trajectory", "2")
    assert "trajectory 2" in answer.stdout
    steps = agentcli("show", "runs/a", "1", "--trajectory", "2", "--json").stdout.splitlines()
    assert json.loads(steps[-1])["outcome"] is not None


def test_a_step_with_all_that_is_known_of_it() -> None:
    answer = succeeded("show", "runs/a", "--step", "2:1")
    for word in ("step 1", "prompt", "response", "state", "credit by grpo"):
        assert word in answer.stdout
    assert agentcli("show", "runs/a", "2", "--step", "1") == answer
    told = json.loads(agentcli("show", "runs/a", "--step", "2:1", "--json").stdout)
    assert told["step"]["id"] == 1
    assert [row["step"] for row in told["credit"]] == [1]


@pytest.mark.parametrize(
    ("words", "code", "names", "remedy"),
    [
        (("nowhere",), 3, "nowhere", "agentcli rollout"),
        (("runs/a", "9"), 2, "line 9", "without TREE"),
        (("runs/a", "1", "--trajectory", "4"), 2, "--trajectory 4", "1 to 3"),
        (("runs/a", "1", "--trajectory", "0"), 2, "--trajectory 0", "1 to 3"),
        (("runs/a", "--trajectory", "1"), 2, "--trajectory", "TREE"),
        (("runs/a", "--beside", "runs/b"), 2, "--beside", "TREE"),
        (("runs/a", "--step", "1"), 2, "--step 1", "--step 1:0"),
        (("runs/a", "--step", "1:999"), 2, "--step 1:999", "0 to"),
        (("runs/a", "1", "--kind", "x"), 2, "--kind", "TREE"),
        (("runs/a", "1", "--failed"), 2, "--failed", "TREE"),
        (("runs/a", "--kind", "x"), 2, "--kind x", "there are"),
        (("runs/a", "1", "--credit", "gigpo"), 3, "gigpo", "agentcli assign-credit"),
        (("runs/a", "--evaluation", "L9"), 3, "L9.jsonl", "train"),
        (("runs/a", "--evaluation", "trian"), 3, "trian.jsonl", "did you mean train?"),
        (("runs/b", "--evaluation", "L9"), 3, "L9.jsonl", "--set evaluation.trees=all"),
        (("runs/a", "9" * 12), 2, "999", "without TREE"),
        (("runs/a", "--evaluation", "train", "--credit", "grpo"), 2, "--credit", "no credit"),
        (("runs/a", "--credit", "../credit/grpo"), 2, "--credit", "tree"),
        (("runs/a", "1", "--credit", "../credit/grpo"), 2, "../credit/grpo", "method"),
        (("runs/a", "1", "--step", "1:0"), 2, "--step 1:0", "--step 0"),
        (("runs/a", "1", "--step", "999"), 2, "--step 999", "0 to"),
        (("runs/a", "--step", "1:0", "--all"), 2, "--step", "all"),
        (("runs/a", "--step", "1:" + "9" * 5000), 2, "--step", "1:0"),
        (("runs/a", "1", "--beside", "runs/b", "--json"), 2, "--beside", "--json"),
        (("--failed",), 2, "run", "agentcli show RUN"),
    ],
)
def test_a_view_that_is_not_there_is_refused(words: tuple[str, ...], code: int, names: str, remedy: str) -> None:
    refused(agentcli("show", *words), code, names=names, remedy=remedy)


def test_failed_trees_end_with_the_command_that_shows_one_beside_another_run(made: Path, tmp_path: Path) -> None:
    for words, other in ((("runs/a",), "runs/b"), (("runs/a", "--evaluation", "train"), "RUN")):
        answer = agentcli("show", *words, "--failed")
        (line,) = [line for line in answer.stderr.splitlines() if "agentcli" in line]
        assert line.endswith(f" --beside {other}")
    shutil.copytree(made, tmp_path / "copy", symlinks=True)
    with contextlib.chdir(tmp_path / "copy"):
        line = agentcli("show", "runs/a", "--failed").stderr.splitlines()[-1]
        typed = line.split("agentcli ")[1].split()
        assert agentcli(*typed).code == 0
        assert agentcli("show", "latest").code == 0
        assert agentcli(*typed[:-1], "b").code == 0, "runs/ may be left out"
        # What was rolled out on other tasks is nothing to put beside it.
        agentcli("rollout", "-c", "toy.yaml", "-q", "--tasks", "2", "-o", "runs/b", "--overwrite")
        assert agentcli("show", "runs/a", "--failed").stderr.splitlines()[-1].endswith("--beside RUN")


def test_a_run_that_has_evaluations_alone_names_them(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "runs/a", tmp_path / "a")
    Path(tmp_path, "a/trees.jsonl").unlink()
    refused(agentcli("show", str(tmp_path / "a"), "2"), 3, names="trees.jsonl", remedy="--evaluation train")


def test_without_runs_it_says_how_to_make_one(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        refused(agentcli("show"), names="runs", remedy="agentcli demos")


def test_a_stage_that_was_killed_is_shown_as_not_ended(made: Path) -> None:
    shutil.copytree("runs/b", "runs/c")
    Path("runs/c/manifest.json").unlink()
    try:
        assert "rollout (not ended)" in " ".join(agentcli("show").stdout.split())
    finally:
        shutil.rmtree("runs/c")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"finished": "2', '"finished": "yesterday 2'),
        ('"rate": ', '"rate": 7'),
        ('"schema_version": ', '"schema_version": 1'),
        ('"stages": {', '"stages": ['),
    ],
)
def test_a_damaged_run_is_named_and_hides_no_other(old: str, new: str) -> None:
    shutil.copytree("runs/a", "runs/damaged")
    try:
        manifest = Path("runs/damaged/manifest.json")
        manifest.write_text(manifest.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        refused(agentcli("show", "runs/damaged"), 3, names="runs/damaged/manifest.json")
        runs = {run["path"]: run for run in map(json.loads, agentcli("show", "--json").stdout.splitlines())}
        assert "manifest.json" in runs["runs/damaged"]["problem"]
        assert runs["runs/b"]["problem"] is None
        assert "cannot be read" in " ".join(agentcli("show").stdout.split())
    finally:
        shutil.rmtree("runs/damaged")


def test_showing_writes_nothing(made: Path) -> None:
    before = files_below(made)
    for words in ((), ("runs/a",), ("runs/a", "1"), ("runs/a", "1", "--trajectory", "1"), ("runs/a", "--step", "1:0")):
        assert agentcli("show", *words).code == 0
    assert files_below(made) == before


def test_the_advice_of_json_is_that_of_the_table() -> None:
    printed = " ".join(agentcli("show", "runs/a", "--advice").stdout.replace("│", " ").split())
    row = json.loads(agentcli("show", "runs/a", "--advice", "--json").stdout)
    assert (row["success"], row["lost"]) == (0, 1)
    assert row["advice"]["success of a draw"] == "nothing to reinforce yet: imitate first"
    assert "groups without any success" in row["advice"]
    for measured in row["advice"]:
        assert measured in printed


def test_a_folder_with_runs_deeper_down_names_one_of_them(tmp_path: Path) -> None:
    shutil.copytree("runs", tmp_path / "study/0")
    said = agentcli("show", str(tmp_path / "study"))
    assert (said.code, said.stdout.strip()) == (0, "")
    assert f"show one below it, such as {tmp_path / 'study/0/a'}" in said.stderr
