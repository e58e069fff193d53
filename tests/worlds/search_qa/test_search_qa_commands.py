"""search_qa on the command line: listed, checked, demonstrated with both sets of actions, and one round of CARL's chain."""

import math
from pathlib import Path

import pytest
from agentcli.records.files import read_records
from agentcli.records.types import Credit, Outcome
from agentcli.training.metrics import TrainMetrics
from command_line import json_lines, succeeded, trees_of

SMALL = ("--set", "environment.options={documents: 60, sizes: {train: 60, test: 20}, actions: browse, part: 160}")

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_it_is_listed_with_its_sizes() -> None:
    listed = json_lines(succeeded("env", "list", "--json").stdout)
    sizes = {row["split"]: row["tasks"] for row in listed if row["world"] == "search_qa"}
    assert sizes == {"train": 2000, "valid": 200, "test": 500}


@pytest.mark.parametrize("actions", ["search", "browse"])
def test_the_check_passes(actions: str) -> None:
    option = f"environment.options.actions={actions}"
    checked = json_lines(succeeded("env", "check", "search_qa", "--set", option, "--tasks", "10", "--json").stdout)
    assert len(checked) == 10
    assert {(row["problem"], row["reward"]) for row in checked} == {(None, 1.0)}


def test_one_kind_of_question_is_rolled_out_in_the_words_of_the_papers() -> None:
    words = ("--env", "search_qa", "--policy", "expert", "--where", "kind=two hops", "--tasks", "2", "--leaves", "1")
    succeeded("rollout", *words, "-o", "x")
    for tree in trees_of("x"):
        assert tree.task.kind == "two hops"
        assert [step.outcome for step in tree.steps] == [None, None, Outcome.SUCCESS]
        assert "</think><search>" in tree.steps[0].response
        assert "</think><answer>" in tree.steps[-1].response


@pytest.mark.slow
def test_carl_from_demonstrations_to_an_update() -> None:
    preset = ("--preset", "quickstart-search", *SMALL)
    succeeded("demos", *preset, "--count", "40", "-o", "demos", "-q")
    outcomes = {step.outcome for tree in trees_of("demos") for step in tree.steps}
    assert {Outcome.SUCCESS, Outcome.FAILURE} <= outcomes, "the expert is at fault on purpose"
    succeeded("sft", "demos", *preset, "--set", "sft.updates=40", "-o", "sft", "-q")
    carl = ("--method", "carl", "--set", "rollout.roots=2", "--leaves", "4")
    succeeded("rollout", *preset, *carl, "--tasks", "2", "--model", "sft/checkpoint", "-o", "x", "-q")
    succeeded("assign-credit", "x", "--method", "carl")
    advantages = []
    for credit in read_records(Path("x/credit/carl.jsonl"), Credit):
        advantages += [step.advantage for step in credit.steps if step.advantage is not None]
    assert advantages
    succeeded("train", "x", "-q")
    assert all(math.isfinite(line.loss) for line in read_records(Path("x/metrics.jsonl"), TrainMetrics))
