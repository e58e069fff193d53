"""WebShop on the command line: listed, checked, looked at by doctor, demonstrated, rolled out and scored."""

import pytest
from agentcli.records.types import Outcome
from command_line import agentcli, json_lines, succeeded, trees_of
from refusal import refused

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_it_is_listed_with_webshops_test_goals() -> None:
    listed = json_lines(agentcli("env", "list", "--json").stdout)
    sizes = {row["split"]: row["tasks"] for row in listed if row["world"] == "webshop"}
    assert sizes["test"] == 500
    assert sizes["train"] > 5000


def test_the_check_passes_on_fifty_tasks() -> None:
    answer = succeeded("env", "check", "webshop", "--tasks", "50", "--json")
    checked = json_lines(answer.stdout)
    assert len(checked) == 50
    assert {(row["problem"], row["reward"]) for row in checked} == {(None, 1.0)}


def test_doctor_says_that_there_are_no_files_and_how_to_get_them() -> None:
    findings = json_lines(agentcli("doctor", "--json").stdout)
    (row,) = [row for row in findings if row["name"] == "webshop data"]
    assert not row["present"]
    assert "WEBSHOP_DATA" in row["detail"]


def test_the_quickstart_demonstrates_faults_and_score_stands_beside_success() -> None:
    succeeded("demos", "--preset", "quickstart-webshop", "--count", "20", "-o", "demos")
    outcomes = [tree.steps[-1].outcome for tree in trees_of("demos")]
    assert {Outcome.SUCCESS, Outcome.FAILURE} <= set(outcomes), "the expert is at fault on purpose"
    words = ("eval", "--env", "webshop", "--policy", "search", "--split", "test", "--set", "evaluation.tasks=40")
    answer = succeeded(*words, "--json", "-o", "x")
    (summary,) = [row for row in json_lines(answer.stdout) if "score" in row]
    assert summary["success"]["rate"] < summary["score"] < 1


def test_a_random_policy_and_the_expert_walk_it_and_a_task_of_another_world_is_refused() -> None:
    words = ("--env", "webshop", "--tasks", "2", "--leaves", "2")
    for policy in ("random", "expert"):
        succeeded("rollout", *words, "--policy", policy, "-o", policy)
    assert all(step.outcome in (None, Outcome.SUCCESS) for tree in trees_of("expert") for step in tree.steps)
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
    succeeded(*words)
    opened = []
    for tree in trees_of("x"):
        for step in tree.steps:
            actions = {move.action for move in step.moves}
            if len(actions) > 1:
                opened.append(actions)
    assert opened, "no step acts differently in its copies"
