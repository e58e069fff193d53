"""Every method on ScienceWorld, through the command line, at the smallest size; no gain is asked for."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentcli.records.files import read_records
from agentcli.records.trees import leaves, validate_tree
from agentcli.records.types import Credit, Episode, Outcome, Tree
from command_line import agentcli

SMALL = """
environment:
  name: scienceworld
  max_steps: 8
  where: {kind: [find-animal, find-living-thing]}
  options: {heap_mb: 256}
prompt: {style: compact}
policy: {temperature: 1.0, max_tokens: 40}
demos: {count: 16, wander: 0.2, keep: all}
sft: {updates: 80, learning_rate: 4.0e-3, samples_per_update: 16, tiny: {hidden: 64, layers: 2}}
rollout: {leaves: 4, tasks_per_step: 2}
train: {rows_per_update: 32}
evaluation: {tasks: 2}
"""
POLICY = "runs/sft/checkpoint"
METHODS = {
    "chain": (),
    "spark": ("--roots", "2", "--branch", "fixed:0.5"),
    "carl": ("--roots", "2"),
    "arpo": (),
    "treerl": (),
    "dpepo": ("--copies", "2", "--leaves", "2"),
}
CREDIT = {
    "chain": ("grpo", "rloo", "gigpo", "rewardflow", "rlvmr"),
    "spark": ("spark", "arpo", "treerl", "treerpo"),
    "carl": ("carl",),
    "dpepo": ("dpepo",),
}

pytestmark = pytest.mark.slow


def done(*words: str) -> str:
    answer = agentcli(*words)
    assert answer.code == 0, (words, answer.stderr)
    return answer.stdout


def trees(run: str) -> list[Tree]:
    grown = list(read_records(Path(run, "trees.jsonl"), Tree))
    for number, tree in enumerate(grown, 1):
        validate_tree(tree, f"{run}:{number}")
    return grown


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """runs/sft, a policy that acts in one game and in several, and runs/METHOD."""
    folder = tmp_path_factory.mktemp("science")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AGENTCLI_")]:
            patch.delenv(name)
        patch.setenv("AGENTCLI_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        Path("small.yaml").write_text(SMALL, encoding="utf-8")
        done("demos", "-c", "small.yaml", "-q", "-o", "runs/demos")
        copies = ("--set", "rollout.method=dpepo", "--set", "rollout.copies=2")
        done("demos", "-c", "small.yaml", *copies, "-q", "-o", "runs/parallel")
        with open("runs/demos/trees.jsonl", "ab") as file:
            file.write(Path("runs/parallel/trees.jsonl").read_bytes())
        done("sft", "runs/demos", "--model", "tiny", "-q", "-o", "runs/sft")
        for method, words in METHODS.items():
            start = ("rollout", "-c", "small.yaml", "--model", POLICY, "--iteration", "0")
            done(*start, "--method", method, *words, "-q", "-o", f"runs/{method}")
        yield folder


@pytest.mark.parametrize("method", METHODS)
def test_its_trees_are_whole(method: str) -> None:
    grown = trees(f"runs/{method}")
    assert len(grown) == 2
    for tree in grown:
        assert Outcome.ERRORED not in {leaf.outcome for leaf in leaves(tree)}
        assert all(step.token_ids for step in tree.steps)


@pytest.mark.parametrize(("run", "credit"), [(run, credit) for run, names in CREDIT.items() for credit in names])
def test_credit_is_assigned(run: str, credit: str) -> None:
    done("assign-credit", f"runs/{run}", "--method", credit, "-q")
    given = list(read_records(Path("runs", run, "credit", f"{credit}.jsonl"), Credit))
    assert [len(one.steps) for one in given] == [len(tree.steps) for tree in trees(f"runs/{run}")]


def test_a_loop_trains() -> None:
    done("run", "-c", "small.yaml", "--model", POLICY, "--iterations", "1", "-q", "-o", "runs/loop")
    assert Path("runs/loop/checkpoint/model.safetensors").is_file()


def test_evaluations() -> None:
    done("eval", "runs/sft", "-c", "small.yaml", "-q")
    done("pass-at-k", "runs/sft", "-c", "small.yaml", "--n", "3", "--k", "2", "-q")
    done("test-time-branch", "runs/sft", "-c", "small.yaml", "-q")
    written = sorted(Path("runs/sft/evaluation").glob("*.jsonl"))
    assert len(written) == 3
    for file in written:
        episodes = list(read_records(file, Episode))
        assert all(0 <= episode.score <= 100 for episode in episodes)
        assert all((episode.score == 100) == (episode.outcome is Outcome.SUCCESS) for episode in episodes)


def test_the_check_passes() -> None:
    words = ("env", "check", "scienceworld", "--where", "kind=find-non-living-thing", "--tasks", "2", "--json")
    rows = [json.loads(line) for line in done(*words).splitlines()]
    assert {(row["problem"], row["reward"]) for row in rows} == {(None, 100.0)}
