"""env check: the expert wins and replays, or the row says what went wrong."""

import re

import pytest
from agentcli.stages.environment import check
from agentcli.stages.progress import Silent
from grown_runs import toy


def test_the_expert_wins_and_replays() -> None:
    rows = check(toy(tasks=12), 4, Silent())
    assert [row.task for row in rows] == ["train/0", "train/3", "train/6", "train/9"]
    assert all(row.problem is None and row.reward == 1 and row.steps > 0 for row in rows)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("drift", r"replay differs at step 1: .* became .* Again\."),
        ("raise", "the lamp broke"),
        ("astray", "restore|fork"),
    ],
)
def test_what_goes_wrong_is_told(fault: str, problem: str) -> None:
    options = {"fault": fault, "fault_tasks": ["train/0"], "fault_action": "go east"}
    rows = check(toy(tasks=2, options=options), 2, Silent())
    assert rows[1].problem is None
    assert re.search(problem, rows[0].problem)


def test_a_fork_that_goes_astray_is_told() -> None:
    """Its plays replay exactly, and what it restores looks right."""
    settings = toy(tasks=4)
    settings.environment.name = "forgetful_world:ForgetfulWorld"
    problems = [row.problem for row in check(settings, 4, Silent())]
    assert all(problem is not None and "after a fork at step" in problem for problem in problems)
