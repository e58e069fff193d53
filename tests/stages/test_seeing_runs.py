"""Sokoban from pixels, every stage as it is typed: a policy that sees imitates, acts, learns and is evaluated."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest
from agentcli.policies.load import sees
from agentcli.records.files import read_json, read_records
from agentcli.records.trees import read_trees
from agentcli.records.types import Manifest, Tree
from agentcli.training.metrics import TrainMetrics
from command_line import Answer, agentcli, chained, succeeded
from refusal import refused

pytestmark = pytest.mark.slow

SETTINGS = """
environment:
  name: sokoban
  max_steps: 3
  options: {pictures: true, size: 5, blocks: 0, longest: 8, levels: {train: 6, valid: 2, test: 3}}
prompt: {style: compact}
policy: {temperature: 1.0, max_tokens: 8}
demos: {count: 6, policy: search, overlook: 0.2, keep: all}
sft:
  model: tiny
  updates: 4
  learning_rate: 3.0e-3
  tiny: {hidden: 32, layers: 1, heads: 2, kv_heads: 1, intermediate: 48}
rollout: {leaves: 2, tasks_per_step: 2}
credit: {method: grpo}
train: {learning_rate: 1.0e-3, rows_per_update: 8, beta: 0.05}
run: {iterations: 2, evaluate_every: 2}
"""
START = ("--preset", "./toy.yaml", "--model", "sft/checkpoint")
COMMANDS = (
    ("demos", "--preset", "./toy.yaml", "-o", "demos"),
    ("sft", "demos", "--preset", "./toy.yaml", "-o", "sft"),
    ("rollout", *START, "-o", "chain"),
    ("assign-credit", "chain", "--method", "gigpo"),
    ("train", "chain", "--set", "train.credit=gigpo"),
    ("run", "--preset", "./toy.yaml", "--model", "sft/checkpoint", "-o", "rl"),
    ("eval", "rl", "--split", "test", "--tasks", "2"),
)


def ended(*words: str) -> Answer:
    """A command whose last line alone is of interest: notes come before it."""
    answer = agentcli(*words)
    return Answer(answer.code, answer.stdout, "".join(answer.stderr.splitlines(keepends=True)[-1:]))


@pytest.fixture(scope="module")
def pixels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chained(tmp_path_factory.mktemp("pixels") / "runs", SETTINGS, COMMANDS)


@pytest.fixture(autouse=True)
def _inside(pixels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pixels)


def test_every_step_has_its_picture_and_no_words_for_the_room() -> None:
    for run in ("demos", "chain", "rl/iteration_001"):
        for _, tree in read_trees(Path(run) / "trees.jsonl"):
            for step in tree.steps:
                (name,) = step.pictures or ()
                assert (Path(run) / "pictures" / f"{name}.png").is_file()
                assert "#" not in step.prompt


def test_checkpoints_of_every_stage_see() -> None:
    for folder in ("sft", "chain", "rl/iteration_000", "rl/iteration_001"):
        assert sees(f"{folder}/checkpoint")
        assert Path(folder, "checkpoint/processor_config.json").is_file()


def test_the_trainer_scored_what_the_policy_sampled() -> None:
    for run in ("chain", "rl/iteration_000", "rl/iteration_001"):
        lines = list(read_records(Path(run) / "metrics.jsonl", TrainMetrics))
        assert lines
        assert lines[0].gap_max < 1e-5
        statistics = read_json(Path(run) / "manifest.json", Manifest).stages["train"].statistics
        assert statistics["logprob_gap"]["max"] < 1e-5


def test_equal_bytes_at_any_concurrency(tmp_path: Path) -> None:
    again = tmp_path / "again"
    succeeded("rollout", *START, "-o", str(again), "--set", "rollout.concurrency=1", "--set", "policy.batch_rows=3")
    assert (again / "trees.jsonl").read_bytes() == Path("chain/trees.jsonl").read_bytes()


def test_the_loop_is_its_stages_one_by_one(tmp_path: Path) -> None:
    shutil.copytree("rl/iteration_000", tmp_path / "one")
    for left in ("checkpoint", "metrics.jsonl", "optimizer.safetensors"):
        path = tmp_path / "one" / left
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    words = ("train", str(tmp_path / "one"), "--model", "sft/checkpoint", "--overwrite")
    succeeded(*words, "--set", "train.reference=sft/checkpoint")
    weights = "checkpoint/model.safetensors"
    assert (tmp_path / "one" / weights).read_bytes() == Path("rl/iteration_000", weights).read_bytes()


def test_dry_runs_know_the_model(tmp_path: Path) -> None:
    for words in (
        ("rollout", *START, "-o", str(tmp_path / "x")),
        ("train", "chain", str(tmp_path / "y")),
        ("sft", "demos", "--preset", "./toy.yaml", "-o", str(tmp_path / "z")),
    ):
        done = (
            agentcli(*words, "--dry-run", "--json")
            if words[0] != "train"
            else agentcli("train", "chain", "--overwrite", "--dry-run", "--json")
        )
        assert done.code == 0, done
        assert json.loads(done.stdout)


def test_an_adapter_is_trained_and_exported_whole(tmp_path: Path) -> None:
    shutil.copytree("chain", tmp_path / "lora")
    run = str(tmp_path / "lora")
    settings = ("--set", "train.lora.rank=2", "--set", "train.credit=gigpo", "--model", "sft/checkpoint")
    assert agentcli("train", run, "--overwrite", *settings).code == 0
    out = tmp_path / "whole"
    succeeded("export", run, "--to", "model", "-o", str(out))
    assert sees(str(out))
    assert (out / "processor_config.json").is_file()


def test_what_reads_texts_only_is_refused(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    for objective in ("dpo", "offline-ppo", "process-reward"):
        settings = ("--set", "train.credit=gigpo", "--set", f"train.objective={objective}")
        line = refused(ended("train", "chain", "--overwrite", *settings), names=("train.objective", objective))
        assert "policy-gradient" in line
    with contextlib.chdir(tmp_path):
        Path("words.yaml").write_text(SETTINGS.replace("pictures: true, ", ""), encoding="utf-8")
        for words in (
            ("demos", "--preset", "./words.yaml", "-o", "demos"),
            ("sft", "demos", "--preset", "./words.yaml", "-o", "sft"),
        ):
            assert agentcli(*words).code == 0
    reader = str(tmp_path / "sft/checkpoint")
    refused(ended("rollout", "--preset", "./toy.yaml", "--model", reader, "-o", out), names="policy.kind")
    pictured = {"code": 3, "names": ("trees.jsonl", "pictures")}
    refused(ended("sft", "demos", "--preset", "./toy.yaml", "--model", reader, "-o", out), **pictured)
    for objective in ("policy-gradient", "offline-ppo", "process-reward"):
        settings = ("--set", "train.credit=gigpo", "--set", f"train.objective={objective}")
        if objective == "process-reward":
            settings += ("--set", "train.options.target=return")
        refused(ended("train", "chain", "--overwrite", "--model", reader, *settings), **pictured)


def test_a_policy_that_sees_reads_texts_too(tmp_path: Path) -> None:
    Path("words.yaml").write_text(SETTINGS.replace("pictures: true, ", ""), encoding="utf-8")
    words = ("rollout", "--preset", "./words.yaml", "--model", "sft/checkpoint", "-o", str(tmp_path / "texts"))
    assert agentcli(*words).code == 0
    trees = list(read_records(tmp_path / "texts/trees.jsonl", Tree))
    assert not any(step.pictures for tree in trees for step in tree.steps)
