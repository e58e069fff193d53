"""search_qa on the command line: listed, checked, demonstrated with both sets of actions, and one round of CARL's chain."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from agentcli.records.files import read_records
from agentcli.records.types import Credit, Outcome, Tree
from agentcli.training.metrics import TrainMetrics
from command_line import agentcli

SMALL = ("--set", "environment.options={documents: 60, sizes: {train: 60, test: 20}, actions: browse, part: 160}")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def done(*words: str) -> str:
    """Stdout of one command line, which must end well."""
    answer = agentcli(*words)
    assert answer.code == 0, f"{' '.join(words)}: {answer.stderr}"
    return answer.stdout


def rows(text: str) -> list[dict[str, Any]]:
    """What --json printed, one object a line."""
    return [json.loads(line) for line in text.splitlines()]


def trees(run: str) -> list[Tree]:
    return list(read_records(Path(run, "trees.jsonl"), Tree))


def test_it_is_listed_with_its_sizes() -> None:
    listed = rows(done("env", "list", "--json"))
    sizes = {row["split"]: row["tasks"] for row in listed if row["world"] == "search_qa"}
    assert sizes == {"train": 2000, "valid": 200, "test": 500}


@pytest.mark.parametrize("actions", ["search", "browse"])
def test_the_check_passes(actions: str) -> None:
    option = f"environment.options.actions={actions}"
    checked = rows(done("env", "check", "search_qa", "--set", option, "--tasks", "10", "--json"))
    assert len(checked) == 10
    assert {(row["problem"], row["reward"]) for row in checked} == {(None, 1.0)}


def test_one_kind_of_question_is_rolled_out_in_the_words_of_the_papers() -> None:
    words = ("--env", "search_qa", "--policy", "expert", "--where", "kind=two hops", "--tasks", "2", "--leaves", "1")
    done("rollout", *words, "-o", "x")
    for tree in trees("x"):
        assert tree.task.kind == "two hops"
        assert [step.outcome for step in tree.steps] == [None, None, Outcome.SUCCESS]
        assert "</think><search>" in tree.steps[0].response
        assert "</think><answer>" in tree.steps[-1].response


@pytest.mark.slow
def test_carl_from_demonstrations_to_an_update() -> None:
    preset = ("--preset", "quickstart-search", *SMALL)
    done("demos", *preset, "--count", "40", "-o", "demos", "-q")
    outcomes = {step.outcome for tree in trees("demos") for step in tree.steps}
    assert {Outcome.SUCCESS, Outcome.FAILURE} <= outcomes, "the expert is at fault on purpose"
    done("sft", "demos", *preset, "--set", "sft.updates=40", "-o", "sft", "-q")
    carl = ("--method", "carl", "--set", "rollout.roots=2", "--leaves", "4")
    done("rollout", *preset, *carl, "--tasks", "2", "--model", "sft/checkpoint", "-o", "x", "-q")
    done("assign-credit", "x", "--method", "carl")
    advantages = []
    for credit in read_records(Path("x/credit/carl.jsonl"), Credit):
        advantages += [step.advantage for step in credit.steps if step.advantage is not None]
    assert advantages
    done("train", "x", "-q")
    assert all(math.isfinite(line.loss) for line in read_records(Path("x/metrics.jsonl"), TrainMetrics))
