"""The papers' presets of search QA really run, small: one tiny policy is trained by each, RewardFlow with embedded states."""

import math
from pathlib import Path

import pytest
from agentcli.credit.similarity import representatives
from agentcli.credit.switches import StateSwitches
from agentcli.records.files import read_json, read_records
from agentcli.records.types import Tree
from agentcli.training.metrics import TrainMetrics
from command_line import succeeded
from tiny_encoder import write_encoder

pytestmark = pytest.mark.slow

ENCODER = "models/e5-base-v2"
ITERATION = "iteration_000"
SMALL = """
environment:
  max_steps: 6
  options: {documents: 60, sizes: {train: 60, valid: 5, test: 5}, part: 160}
prompt: {style: compact}
policy: {temperature: 1.0, max_tokens: 32, max_prompt_tokens: 1024}
rollout: {tasks_per_step: 3}
train: {rows_per_microbatch: 8}
run: {iterations: 1}
"""
TRAINED = (
    "carl-search",
    "carl-lite-search",
    "grpo-search",
    "treerl-search",
    "treerpo-search",
    "arpo-search",
    "gigpo-search",
    "rewardflow-search",
)


def done(*words: str) -> None:
    """One command line, which must end well."""
    succeeded(*words, "-q")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a policy of both sets of actions in sft/checkpoint, and the encoder."""
    folder = tmp_path_factory.mktemp("search")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("small.yaml").write_text(SMALL, encoding="utf-8")
        quickstart = ("--preset", "quickstart-search", "-c", "small.yaml")
        faultless = ("--set", "demos.forget=0", "--set", "demos.overlook=0", "--set", "demos.wander=0")
        for actions in ("search", "browse"):
            chosen = ("--set", f"environment.options.actions={actions}", "--count", "150")
            done("demos", *quickstart, *faultless, *chosen, "-o", actions)
        with open("browse/trees.jsonl", "ab") as file:
            file.write(Path("search/trees.jsonl").read_bytes())
        shape = ("--set", "sft.updates=300", "--set", "sft.tiny.hidden=64", "--set", "sft.tiny.layers=2")
        done("sft", "browse", *quickstart, *shape, "-o", "sft")
        texts = " ".join(
            step.canonical or "" for tree in read_records(Path("search/trees.jsonl"), Tree) for step in tree.steps
        )
        write_encoder(folder / ENCODER, sorted(set(texts.split())))
    return folder


@pytest.mark.parametrize("name", TRAINED)
def test_it_trains(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    done("run", "--preset", name, "-c", "small.yaml", "--model", "sft/checkpoint", "-o", name)
    lines = list(read_records(Path(name, ITERATION, "metrics.jsonl"), TrainMetrics))
    assert lines
    assert all(math.isfinite(line.loss) for line in lines)


def test_zero_shot_is_evaluated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    done("eval", "--preset", "react-search", "-c", "small.yaml", "--model", "sft/checkpoint", "-o", "react")
    assert read_json(Path("react/evaluation/test.json"), dict)["episodes"] == 5


def test_embeddings_make_fewer_states_than_equal_texts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    trees = Path("rewardflow-search", ITERATION, "trees.jsonl")
    switches = StateSwitches(similarity="embedding:0.9", embedding_model=ENCODER)
    for tree in read_records(trees, Tree):
        keys = [step.canonical or "" for step in tree.steps]
        assert len(set(representatives(keys, switches).values())) < len(set(keys))
