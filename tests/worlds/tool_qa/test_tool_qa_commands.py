"""tool_qa on the command line: listed, checked, looked at by doctor, demonstrated and rolled out by category."""

import pytest
from agentcli.records.types import Outcome
from command_line import agentcli, json_lines, succeeded, trees_of

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_it_is_listed_with_the_papers_sizes() -> None:
    listed = json_lines(agentcli("env", "list", "--json").stdout)
    sizes = {row["split"]: row["tasks"] for row in listed if row["world"] == "tool_qa"}
    assert sizes == {"train": 2500, "valid": 100, "test": 840}


def test_the_check_passes_on_every_category() -> None:
    answer = succeeded("env", "check", "tool_qa", "--tasks", "14", "--json")
    checked = json_lines(answer.stdout)
    assert len(checked) == 14
    assert {(row["problem"], row["reward"]) for row in checked} == {(None, 1.0)}


def test_doctor_names_the_walls_of_the_sandbox() -> None:
    findings = json_lines(agentcli("doctor", "--json").stdout)
    (row,) = [row for row in findings if row["name"] == "tool_qa sandbox"]
    assert row["present"]
    assert "seccomp" in row["detail"]


def test_a_preset_demonstrates_and_a_category_is_rolled_out() -> None:
    succeeded("demos", "--preset", "quickstart-tools", "--count", "12", "-o", "demos")
    outcomes = [tree.steps[-1].outcome for tree in trees_of("demos")]
    assert set(outcomes) == {Outcome.SUCCESS, Outcome.FAILURE}, "the expert is at fault on purpose"
    words = ("--env", "tool_qa", "--policy", "expert", "--where", "kind=math", "--tasks", "3", "--leaves", "2")
    succeeded("rollout", *words, "-o", "x")
    grown = trees_of("x")
    assert [tree.task.kind for tree in grown] == ["math"] * 3
    assert all(step.outcome in (None, Outcome.SUCCESS) for tree in grown for step in tree.steps)
