"""Evaluations as files: every episode once, resuming to the same bytes, and nothing lost to a command that fails."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.environments.registry import make_world
from agentcli.evaluation.episodes import episodes
from agentcli.exploration.settings import decode, evaluation_class, rollout_settings
from agentcli.records.files import read_json, read_records, write_json
from agentcli.records.settings import (
    EnvironmentSettings,
    EvaluationSettings,
    PolicySettings,
    PromptSettings,
    Settings,
)
from agentcli.records.types import Episode, Manifest, Outcome, Tree
from agentcli.stages.evaluate import plan_test_time_branch
from agentcli.stages.panels import make_panel
from agentcli.stages.session import Invocation
from agentcli.stages.tally import share_of_success
from chat_server import ChatServer, completion
from command_line import agentcli
from refusal import refusal, refused
from staged import evaluate, pass_at_k

SETTINGS = Settings(
    environment=EnvironmentSettings(name="toy_world:ToyWorld", max_steps=12, options={"tasks": 10}),
    prompt=PromptSettings(style="compact"),
    policy=PolicySettings(kind="random"),
    evaluation=EvaluationSettings(split="test", samples=3, n=4, k=2),
)


def run(out: Path, settings: Settings = SETTINGS, stage: Any = evaluate, **flags: bool) -> dict[str, Any]:
    return stage(settings, out, Invocation(["agentcli", "eval"], **flags)).values()


def test_every_episode_once_in_the_panels_order(tmp_path: Path) -> None:
    summary = run(tmp_path)
    rows = list(read_records(tmp_path / "evaluation/test.jsonl", Episode))
    assert [(row.task, row.sample) for row in rows] == [(f"test/{n}", sample) for n in range(10) for sample in range(3)]
    won = sum(row.outcome is Outcome.SUCCESS for row in rows)
    assert 0 < won < 30
    assert summary["success"]["rate"] == pytest.approx(won / 30)
    assert json.loads((tmp_path / "evaluation/test.json").read_text(encoding="utf-8")) == summary


@pytest.mark.parametrize("cut", [0, 700, 2000, -5])
def test_a_cut_evaluation_resumes_to_the_same_bytes(tmp_path: Path, cut: int) -> None:
    summary = run(tmp_path)
    assert summary["ledger"]["steps"] == sum(
        row.steps for row in read_records(tmp_path / "evaluation/test.jsonl", Episode)
    )
    path = tmp_path / "evaluation/test.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    assert run(tmp_path, resume=True) == summary, "the ledger counts what was sampled before as well"
    assert path.read_bytes() == whole
    manifest = (tmp_path / "manifest.json").read_bytes()
    assert run(tmp_path, resume=True) == summary
    assert (tmp_path / "manifest.json").read_bytes() == manifest, "nothing owed, nothing written"


def trees_of(out: Path) -> list[Tree]:
    return list(read_records(out / "evaluation/trees/test.jsonl", Tree))


def test_the_trees_are_those_of_the_episodes(tmp_path: Path) -> None:
    run(tmp_path)
    rows = list(read_records(tmp_path / "evaluation/test.jsonl", Episode))
    assert [episode for tree in trees_of(tmp_path) for episode in episodes(tree)] == rows


@pytest.mark.parametrize("keep", ["failed", "none"])
def test_only_the_wanted_trees_are_kept(tmp_path: Path, keep: str) -> None:
    """One sample a task, in a seed where some tasks succeed."""
    for trees in ("all", keep):
        wanted = msgspec.structs.replace(SETTINGS.evaluation, samples=1, trees=trees)
        run(tmp_path / trees, msgspec.structs.replace(SETTINGS, seed=2, evaluation=wanted))
    failed = [tree for tree in trees_of(tmp_path / "all") if share_of_success(tree) < 1]
    assert 0 < len(failed) < 10
    file = tmp_path / keep / "evaluation/trees/test.jsonl"
    if keep == "failed":
        assert trees_of(tmp_path / keep) == failed
    else:
        assert not file.exists()


@pytest.mark.parametrize("keep", ["all", "failed", "none"])
@pytest.mark.parametrize(
    ("trees", "left", "done"),
    [
        (0, (), 0),
        (4, (), 4),
        (10, (), 10),
        (10, ("jsonl",), 10),
        (None, ("jsonl",), 10),
        (None, ("jsonl", "json"), 10),
    ],
    ids=["before a tree", "growing", "grown", "before pruning", "before the summary", "before the manifest"],
)
def test_killed_at_any_time_it_goes_on_to_the_same_bytes(
    tmp_path: Path, keep: str, trees: int | None, left: tuple[str, ...], done: int
) -> None:
    """Nothing is lost and nothing is played twice. A torn line follows the trees that are left (None: those that stay)."""
    for wanted in ("all", keep):
        evaluation = msgspec.structs.replace(SETTINGS.evaluation, samples=1, trees=wanted)
        settings = msgspec.structs.replace(SETTINGS, seed=2, evaluation=evaluation)
        if not (tmp_path / wanted).exists():
            run(tmp_path / wanted, settings)
    folder = tmp_path / keep / "evaluation"
    before = {path: path.read_bytes() for path in folder.rglob("*.json*")}
    if trees is not None:
        lines = (tmp_path / "all/evaluation/trees/test.jsonl").read_bytes().splitlines(keepends=True)
        (folder / "trees").mkdir(exist_ok=True)
        (folder / "trees/test.jsonl").write_bytes(b"".join(lines[:trees]) + lines[-1][: 30 * (trees < 10)])
    for suffix in {"jsonl", "json"} - set(left):
        (folder / f"test.{suffix}").unlink()
    (tmp_path / keep / "manifest.json").unlink()
    (tmp_path / keep / "settings/evaluation-test.json").unlink()
    run(tmp_path / keep, settings, resume=True)
    assert {path: path.read_bytes() for path in folder.rglob("*.json*")} == before
    assert (folder / "trees").exists() == (keep != "none")
    log = max((tmp_path / keep / "logs").iterdir()).read_text(encoding="utf-8")
    assert ("done before" in log) == (done > 0)
    assert not done or f", {done} done before" in log


@pytest.mark.parametrize("keep", ["all", "failed"])
def test_a_tree_that_was_to_stay_and_is_gone_is_grown_again(tmp_path: Path, keep: str) -> None:
    wanted = msgspec.structs.replace(SETTINGS.evaluation, trees=keep)
    settings = msgspec.structs.replace(SETTINGS, evaluation=wanted)
    run(tmp_path, settings)
    before = {path: path.read_bytes() for path in (tmp_path / "evaluation").rglob("*.json*")}
    trees = tmp_path / "evaluation/trees/test.jsonl"
    trees.write_bytes(b"".join(trees.read_bytes().splitlines(keepends=True)[1:]))
    run(tmp_path, settings, resume=True)
    assert {path: path.read_bytes() for path in before} == before


def test_a_replacement_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    run(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    unknown = msgspec.structs.replace(SETTINGS, policy=PolicySettings(kind="nobody"))
    refused(lambda: run(tmp_path, unknown, overwrite=True), names="nobody")
    refused(lambda: run(tmp_path), names="test.jsonl", remedy="--resume")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_pass_at_k_grows_with_k_and_starts_at_the_success_rate(tmp_path: Path) -> None:
    summary = run(tmp_path, stage=pass_at_k)
    rates = [value["rate"] for value in summary["pass_at_k"].values()]
    assert list(summary["pass_at_k"]) == ["1", "2"]
    assert rates[0] == pytest.approx(summary["success"]["rate"])
    assert rates[0] < rates[1] <= 1
    with refusal(2, ("k", "n")):
        run(tmp_path, msgspec.structs.replace(SETTINGS, evaluation=EvaluationSettings(n=1, k=2)), pass_at_k)


def test_in_several_copies_moves_are_what_the_ledger_charges(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(SETTINGS, rollout=rollout_settings(method="dpepo", copies=3))
    summary = run(tmp_path, settings)
    rows = list(read_records(tmp_path / "evaluation/test.jsonl", Episode))
    assert sum(row.moves or 0 for row in rows) == summary["ledger"]["steps"] > sum(row.steps for row in rows)
    assert summary["moves"] == pytest.approx(summary["ledger"]["steps"] / 30)
    assert summary["repetitive"] == pytest.approx(
        sum(row.repetitive_steps for row in rows) / summary["ledger"]["steps"]
    )


@pytest.mark.parametrize(
    ("wanted", "trained", "used"),
    [(None, "malformed", "malformed"), (None, "failure", "failure"), ("failure", "malformed", "failure")],
)
def test_an_evaluation_has_its_own_limit_and_draws_nothing_again(
    tmp_path: Path, wanted: Any, trained: Any, used: str
) -> None:
    rollout = rollout_settings(method="dpepo", copies=2, beyond=trained, distinct=3)
    evaluation = evaluation_class("dpepo")(split="test", samples=3, beyond=wanted)
    run(tmp_path, msgspec.structs.replace(SETTINGS, rollout=rollout, evaluation=evaluation))
    told = read_json(tmp_path / "manifest.json", Manifest).stages["evaluation/test"].settings["rollout"]
    assert (told["beyond"], told["distinct"]) == (used, 0)


def test_a_panel_file_gives_its_name_and_the_split_of_its_tasks(tmp_path: Path) -> None:
    tasks = make_world(SETTINGS.environment).tasks("train")[:2]
    write_json(tmp_path / "mine.json", make_panel("mine", "toy", tasks))
    environment = msgspec.structs.replace(SETTINGS.environment, panel=str(tmp_path / "mine.json"))
    summary = run(tmp_path / "x", msgspec.structs.replace(SETTINGS, environment=environment))
    assert (summary["label"], summary["split"], summary["panel"]["name"]) == ("mine", "train", "mine")
    assert (tmp_path / "x/evaluation/mine.jsonl").exists()


def test_a_vote_takes_its_settings_from_evaluation_alone() -> None:
    """A depth of 1 is one of spark's, for its trees."""
    settings = decode(
        {
            **msgspec.to_builtins(SETTINGS),
            "rollout": {"method": "test-time-branch", "depth": 1, "vote_tokens": 9},
            "evaluation": {"split": "test", "branching": 2},
        }
    )
    chosen = plan_test_time_branch(settings, Path("x"), model=None).settings.rollout
    assert (chosen.branching, chosen.depth, chosen.vote_tokens) == (2, None, None)


def test_a_greedy_server_that_chooses_its_model_is_warned_of(tmp_path: Path) -> None:
    preset = tmp_path / "quiz.yaml"
    quiz = {"name": "quiz_world:QuizWorld", "split": "test", "max_steps": 2, "processes": 1}
    chosen = {"environment": quiz, "policy": {"kind": "openai"}, "rollout": {"most_errored": 1}}
    preset.write_text(json.dumps(chosen), encoding="utf-8")
    answer = completion("<think> sure </think><answer> A </answer>")
    with ChatServer(lambda body, before: answer) as server:
        words = ("--samples", "2", "--tasks", "1", "--temperature", "0", "--base-url", server.url)
        done = agentcli("eval", "--preset", str(preset), "-o", str(tmp_path / "x"), *words)
    assert "at temperature 0 the samples of a task are alike" in done.stderr, done
