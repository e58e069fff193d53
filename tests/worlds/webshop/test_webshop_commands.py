"""WebShop on the command line: listed, checked, looked at by doctor, demonstrated, rolled out and scored."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcli.records.files import read_records
from agentcli.records.types import Outcome, Tree
from command_line import agentcli
from refusal import refused


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rows(text: str) -> list[dict[str, Any]]:
    """What --json printed, one object a line."""
    return [json.loads(line) for line in text.splitlines()]


def trees(run: str) -> list[Tree]:
    return list(read_records(Path(run, "trees.jsonl"), Tree))


def test_it_is_listed_with_webshops_test_goals() -> None:
    listed = rows(agentcli("env", "list", "--json").stdout)
    sizes = {row["split"]: row["tasks"] for row in listed if row["world"] == "webshop"}
    assert sizes["test"] == 500
    assert sizes["train"] > 5000


def test_the_check_passes_on_fifty_tasks() -> None:
    answer = agentcli("env", "check", "webshop", "--tasks", "50", "--json")
    assert answer.code == 0, answer.stderr
    checked = rows(answer.stdout)
    assert len(checked) == 50
    assert {(row["problem"], row["reward"]) for row in checked} == {(None, 1.0)}


def test_doctor_says_that_there_are_no_files_and_how_to_get_them() -> None:
    findings = rows(agentcli("doctor", "--json").stdout)
    (row,) = [row for row in findings if row["name"] == "webshop data"]
    assert not row["present"]
    assert "WEBSHOP_DATA" in row["detail"]


def test_the_quickstart_demonstrates_faults_and_score_stands_beside_success() -> None:
    answer = agentcli("demos", "--preset", "quickstart-webshop", "--count", "20", "-o", "demos")
    assert answer.code == 0, answer.stderr
    outcomes = [tree.steps[-1].outcome for tree in trees("demos")]
    assert {Outcome.SUCCESS, Outcome.FAILURE} <= set(outcomes), "the expert is at fault on purpose"
    words = ("eval", "--env", "webshop", "--policy", "search", "--split", "test", "--set", "evaluation.tasks=40")
    answer = agentcli(*words, "--json", "-o", "x")
    assert answer.code == 0, answer.stderr
    (summary,) = [row for row in rows(answer.stdout) if "score" in row]
    assert summary["success"]["rate"] < summary["score"] < 1


def test_a_random_policy_and_the_expert_walk_it_and_a_task_of_another_world_is_refused() -> None:
    words = ("--env", "webshop", "--tasks", "2", "--leaves", "2")
    for policy in ("random", "expert"):
        answer = agentcli("rollout", *words, "--policy", policy, "-o", policy)
        assert answer.code == 0, answer.stderr
    assert all(step.outcome in (None, Outcome.SUCCESS) for tree in trees("expert") for step in tree.steps)
    refused(
        agentcli("rollout", *words, "--policy", "random", "--split", "L0", "-o", "y"), names="--split L0", remedy="test"
    )


def test_copies_look_at_different_hits_in_demonstrations_of_dpepo() -> None:
    words = (
        "demos",
        "--env",
        "webshop",
        "--set",
        "rollout.method=dpepo",
        "--set",
        "rollout.copies=3",
        "--count",
        "6",
        "-o",
        "x",
    )
    answer = agentcli(*words)
    assert answer.code == 0, answer.stderr
    opened = []
    for tree in trees("x"):
        for step in tree.steps:
            actions = {move.action for move in step.moves}
            if len(actions) > 1:
                opened.append(actions)
    assert opened, "no step acts differently in its copies"
