"""Shares of tools by step, and their entropy, by hand."""

import math

import pytest
from agentcli.evaluation.calls import call_shares
from agentcli.records.types import Move, Outcome, Tree, Validity
from credit_trees import chains


def trajectory(*actions: str | None, outcome: Outcome = Outcome.SUCCESS) -> Tree:
    ends = [None] * (len(actions) - 1) + [outcome]
    return chains([[{"action": action, "outcome": end} for action, end in zip(actions, ends, strict=True)]])


def test_by_step_and_together() -> None:
    together, first, second = call_shares(
        [
            trajectory("search[a]", "answer[B]"),
            trajectory("search[a]", "python[1]"),
            trajectory("units[3 m]", None),
            trajectory("facts[g]", "cot[hm]"),
            trajectory("cot[hm]", outcome=Outcome.ERRORED),
        ]
    )
    assert (together.step, first.step, second.step) == (None, 1, 2)
    assert (together.trajectories, first.trajectories, second.trajectories) == (4, 4, 4)
    assert first.calls == {"search": 2, "facts": 1, "units": 1}
    assert second.calls == {"answer": 1, "cot": 1, "none": 1, "python": 1}
    assert first.entropy == pytest.approx(1.5 * math.log(2))
    assert second.entropy == pytest.approx(math.log(2)), "answers and unreadable steps are no tools"
    assert next(iter(together.calls)) == "search"


def test_a_name_that_is_no_tool_is_none() -> None:
    tree = trajectory("tool1[a]", "tool2[a]", "search[a]")
    for step in tree.steps[:2]:
        step.validity = Validity.INADMISSIBLE
    together = call_shares([tree])[0]
    assert together.calls == {"none": 2, "search": 1}
    assert together.entropy == 0


def test_one_tool_has_no_entropy_and_no_trees_no_steps() -> None:
    assert call_shares([trajectory("search[a]")])[0].entropy == 0
    (together,) = call_shares([])
    assert (together.calls, together.entropy, together.trajectories) == ({}, 0, 0)


def test_a_response_in_copies_calls_several() -> None:
    """Two tools at once and then none: two trajectories' worth of calls in one."""
    tree = trajectory(None, None)
    same = {"state": "s", "next_state": "s", "observation": "", "next_observation": ""}
    calls = ("search[a]", "python[1]")
    tree.steps[0].moves = [Move(copy=copy, action=call, **same) for copy, call in enumerate(calls, 1)]
    together, first, second = call_shares([tree])
    assert (first.calls, first.trajectories, first.entropy) == (
        {"python": 1, "search": 1},
        1,
        pytest.approx(math.log(2)),
    )
    assert (second.calls, second.calls_any) == ({"none": 1}, False)
    assert together.trajectories == 1
