"""Every preset of WebShop for one iteration at the smallest size, and what evaluations report there; no gain is asked for.

tests/test_worlds_by_methods.py has every method.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentcli.records.files import read_json, read_records
from agentcli.records.types import Episode, Manifest, Outcome
from agentcli.stages.layers import list_presets, resolve
from agentcli.training.metrics import TrainMetrics
from command_line import succeeded

pytestmark = pytest.mark.slow

SMALL = """
environment:
  max_steps: 10
  options: {products: 40, kinds: [loafers, rug], tests: 20}
prompt: {style: compact}
policy: {temperature: 0.9, max_tokens: 40, max_prompt_tokens: 2048}
demos: {keep: all, forget: 0.5, wander: 0}
sft: {updates: 150, learning_rate: 4.0e-3, samples_per_update: 16, max_length: 2048, tiny: {hidden: 64, layers: 2}}
rollout: {leaves: 4, tasks_per_step: 2}
evaluation: {tasks: 2, temperature: 1.0, n: 4, k: 2}
run: {iterations: 1}
"""
PRESETS = [path.stem for path in list_presets() if "-webshop" in path.stem]
WITHOUT_TRAINING = {"react-webshop", "sft-webshop"}
TRAINED = [name for name in PRESETS if name not in WITHOUT_TRAINING]
POLICY = "runs/sft/checkpoint"
SHOP = ("-c", "small.yaml", "--env", "webshop")


def done(*words: str) -> None:
    """One command line, which must end well."""
    succeeded(*words, "-q")


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with demonstrations in one copy and in two, and the policy that learned from both."""
    folder = tmp_path_factory.mktemp("webshop")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("small.yaml").write_text(SMALL, encoding="utf-8")
        done("demos", "--preset", "grpo-webshop-cold", "-c", "small.yaml", "--count", "40", "-o", "runs/demos")
        copies = ("--set", "rollout.copies=2")
        done("demos", "--preset", "dpepo-webshop", "-c", "small.yaml", *copies, "--count", "20", "-o", "runs/parallel")
        with open("runs/demos/trees.jsonl", "ab") as file:
            file.write(Path("runs/parallel/trees.jsonl").read_bytes())
        done("sft", "runs/demos", "-c", "small.yaml", "--model", "tiny", "-o", "runs/sft")
        yield folder


@pytest.mark.parametrize("name", TRAINED)
def test_a_preset_runs_one_iteration(name: str) -> None:
    settings = resolve(name, [], {}, [], {})
    words = ["-c", "small.yaml", "--model", POLICY]
    if settings.rollout.method == "dpepo":
        words += ["--set", "rollout.copies=2"]
    if settings.train.objective == "dpo":
        # Pairs need a policy that sometimes wins, which so small a one does not.
        done("rollout", "--preset", name, "--tasks", "2", *words, "-o", f"loops/{name}")
        return
    done("run", "--preset", name, *words, "-o", f"loops/{name}")
    run = Path(f"loops/{name}/iteration_000")
    assert read_json(run / "manifest.json", Manifest).stages["train"]
    for line in read_records(run / "metrics.jsonl", TrainMetrics):
        assert math.isfinite(line.loss)


def test_every_way_to_evaluate_reports_score_and_success() -> None:
    done("eval", "runs/sft", *SHOP, "--split", "test", "-o", "runs/eval")
    episodes = list(read_records(Path("runs/eval/evaluation/test.jsonl"), Episode))
    assert len(episodes) == 2
    for episode in episodes:
        assert 0 <= episode.score <= 1
        assert (episode.score == 1) is (episode.outcome is Outcome.SUCCESS)
    for command in ("pass-at-k", "test-time-branch"):
        done(command, "runs/sft", *SHOP, "--split", "test", "-o", f"runs/{command}")
