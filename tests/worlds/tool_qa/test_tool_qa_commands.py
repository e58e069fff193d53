"""tool_qa on the command line: listed, checked, looked at by doctor, demonstrated and rolled out by category."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcli.records.files import read_records
from agentcli.records.types import Outcome, Tree
from command_line import agentcli


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rows(text: str) -> list[dict[str, Any]]:
    """What --json printed, one object a line."""
    return [json.loads(line) for line in text.splitlines()]


def trees(run: str) -> list[Tree]:
    return list(read_records(Path(run, "trees.jsonl"), Tree))


def test_it_is_listed_with_the_papers_sizes() -> None:
    listed = rows(agentcli("env", "list", "--json").stdout)
    sizes = {row["split"]: row["tasks"] for row in listed if row["world"] == "tool_qa"}
    assert sizes == {"train": 2500, "valid": 100, "test": 840}


def test_the_check_passes_on_every_category() -> None:
    answer = agentcli("env", "check", "tool_qa", "--tasks", "14", "--json")
    assert answer.code == 0, answer.stderr
    checked = rows(answer.stdout)
    assert len(checked) == 14
    assert {(row["problem"], row["reward"]) for row in checked} == {(None, 1.0)}


def test_doctor_names_the_walls_of_the_sandbox() -> None:
    findings = rows(agentcli("doctor", "--json").stdout)
    (row,) = [row for row in findings if row["name"] == "tool_qa sandbox"]
    assert row["present"]
    assert "seccomp" in row["detail"]


def test_a_preset_demonstrates_and_a_category_is_rolled_out() -> None:
    answer = agentcli("demos", "--preset", "quickstart-tools", "--count", "12", "-o", "demos")
    assert answer.code == 0, answer.stderr
    outcomes = [tree.steps[-1].outcome for tree in trees("demos")]
    assert set(outcomes) == {Outcome.SUCCESS, Outcome.FAILURE}, "the expert is at fault on purpose"
    words = ("--env", "tool_qa", "--policy", "expert", "--where", "kind=math", "--tasks", "3", "--leaves", "2")
    answer = agentcli("rollout", *words, "-o", "x")
    assert answer.code == 0, answer.stderr
    grown = trees("x")
    assert [tree.task.kind for tree in grown] == ["math"] * 3
    assert all(step.outcome in (None, Outcome.SUCCESS) for tree in grown for step in tree.steps)
