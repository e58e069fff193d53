"""Graded outcomes (`outcome: score`): arithmetic done by hand, and what scores of 1 and 0 must give."""

from typing import Any

import msgspec
import pytest
from agentcli.credit.statistics import CreditStatistics
from agentcli.errors import DataError
from agentcli.records.types import Tree
from credit_trees import (
    ERRORED,
    FAILURE,
    OF_OUTCOMES,
    SUCCESS,
    TRUNCATED,
    advantages,
    chains,
    move,
    outcomes,
    random_trees,
    step,
    tree,
    walk,
)
from hypothesis import given, settings
from test_credit_properties import credit_of, every, reordered
from test_explain import explanation, lines_of


def answers() -> Tree:
    """F1 of three answers: .5 in two halves, truncated; .8, a success; .2, a failure. A fourth broke after .3."""
    grown = outcomes([2, 1, 2, 1], [TRUNCATED, SUCCESS, FAILURE, ERRORED])
    for each, reward in zip(grown.steps, (0.25, 0.25, 0.8, 0.0, 0.2, 0.3), strict=True):
        each.reward = reward
    return grown


def test_grpo_by_hand() -> None:
    # Scores .5 .8 .2: mean .5, std sqrt((.3^2 + .3^2) / 2) = .3.
    plain = {"method": "grpo", "outcome": "score"}
    computed = advantages(credit_of(answers(), {**plain, "normalise": "mean", "success_reward": 10.0}))
    assert computed[:5] == pytest.approx([0, 0, 3, -3, -3], abs=1e-12)
    assert computed[5] is None
    unit = 0.3 / (0.3 + 1e-6)
    assert advantages(credit_of(answers(), plain))[:5] == pytest.approx([0, 0, unit, -unit, -unit], abs=1e-12)
    # The release over steps: rows .5 .5 .8 .2 .2, mean .44.
    release = advantages(credit_of(answers(), {**plain, "form": "release", "normalise": "mean"}))
    assert release[:5] == pytest.approx([0.06, 0.06, 0.36, -0.24, -0.24], abs=1e-12)
    assert lines_of(explanation(answers(), plain, 0))["reward"].formula == "success_reward * earned / leaves"


def test_carl_by_hand() -> None:
    """Two first steps, 0 and the leaf 5 (.15). Step 0 brings .1; below it the leaf 1 (.8) and step 2 with leaves 3 (.5) and 4 (.1).
    Scores .9 .6 .2 .15: E[2] = .4, E[0] = .65, E[root] = .4."""
    rewards, ends = (0.1, 0.8, 0.0, 0.5, 0.1, 0.15), {1: SUCCESS, 3: TRUNCATED, 4: FAILURE, 5: FAILURE}
    steps = [
        step(n, parent, outcome=ends.get(n), reward=rewards[n]) for n, parent in enumerate([None, 0, 0, 2, 2, None])
    ]
    computed = credit_of(tree(*steps), {"method": "carl", "outcome": "score"})
    assert advantages(computed) == pytest.approx([0.25, 0.25, -0.25, 0.2, -0.2, -0.25], abs=1e-12)
    assert computed.steps[0].parts["baseline"] == pytest.approx(0.4)
    # treerl's V(s) are means over leaves: V(0) = 1.7 / 3, V(root) = 1.85 / 4.
    value = credit_of(tree(*steps), {"method": "treerl", "outcome": "score"}).steps[0].parts
    assert (value["value"], value["global"]) == pytest.approx((1.7 / 3, 1.7 / 3 - 1.85 / 4))


def test_rewardflow_grades_the_trajectory_term_and_leaves_the_graph_alone() -> None:
    grown = chains([walk("abc", SUCCESS), walk("abd", FAILURE)])
    for each, reward in zip(grown.steps, (0.1, 0.6, 0.1, 0.2), strict=True):
        each.reward = reward
    graded, plain = (
        credit_of(grown, {"method": "rewardflow", "normalise": "mean", "outcome": outcome})
        for outcome in ("score", "success")
    )
    # Scores .7 and .3: mean .5.
    assert [row.parts["trajectory"] for row in graded.steps] == pytest.approx([0.2, 0.2, -0.2, -0.2], abs=1e-12)
    for name in ("action", "gain", "value", "next_value"):
        assert [row.parts[name] for row in graded.steps] == [row.parts[name] for row in plain.steps]


def test_dpepo_splits_a_shared_step_by_its_leaves_scores() -> None:
    # Scores .8 and .2, mean .5: Phi .3 and -.3. Step 0 has R_step 2: (2 * .3 + 0 * -.3) / 2. Step 1 repeats it, R_step 1.875.
    ends = {1: FAILURE, 2: TRUNCATED}
    acts, rewards = ("go", "go", "take"), (0.0, 0.8, 0.2)
    steps = [
        step(n, None if n == 0 else 0, action=None, moves=[move(1, acts[n])], reward=rewards[n], outcome=ends.get(n))
        for n in range(3)
    ]
    switches = {"method": "dpepo", "normalise": "mean", "outcome": "score"}
    assert advantages(credit_of(tree(*steps), switches)) == pytest.approx([0.3, 1.875 * 0.3, 0.0], abs=1e-12)
    doubled = advantages(credit_of(tree(*steps), {**switches, "prefix": "duplicate"}))
    assert doubled == pytest.approx([0.6, 1.875 * 0.3, 0.0, 0.0], abs=1e-12)


def test_gigpo_returns_the_score_with_the_last_step() -> None:
    credit = credit_of(answers(), {"method": "gigpo", "gamma": 0.5, "outcome": "score"})
    assert [row.parts["return"] for row in credit.steps[:5]] == pytest.approx([0.25, 0.5, 0.8, 0.1, 0.2])
    # The world's rewards step by step, with the outcomes graded all the same: .25 + .5 * .25, ...
    switches = {"method": "gigpo", "gamma": 0.5, "rewards": "environment", "outcome": "score", "normalise": "mean"}
    both = credit_of(answers(), switches)
    assert [row.parts["return"] for row in both.steps[:5]] == pytest.approx([0.375, 0.25, 0.8, 0.1, 0.2])
    assert [row.parts["trajectory"] for row in both.steps[:5]] == pytest.approx([0, 0, 0.3, -0.3, -0.3], abs=1e-12)


def test_rlvmr_plans_for_success_and_compares_scores() -> None:
    grown = answers()
    for each in grown.steps:
        each.tag = "planning"
    credit = credit_of(grown, {"method": "rlvmr", "normalise": "mean", "outcome": "score"})
    assert [row.parts["tag_reward"] for row in credit.steps[:5]] == [0, 0, 1, 0, 0]
    assert [row.parts["trajectory"] for row in credit.steps[:5]] == pytest.approx([0, 0, 0.3, -0.3, -0.3], abs=1e-12)


@settings(max_examples=200, deadline=None)
@given(random_trees(), every(tuple(OF_OUTCOMES), outcome="success", rewards="outcome"))
def test_scores_of_one_and_zero_are_successes(grown: Tree, switches: dict[str, Any]) -> None:
    plain = tree(
        *(msgspec.structs.replace(each, reward=1.0 if each.outcome is SUCCESS else 0.0) for each in grown.steps)
    )
    wanted, computed = (credit_of(plain, {**switches, "outcome": outcome}) for outcome in ("success", "score"))
    for row, other in zip(wanted.steps, computed.steps, strict=True):
        assert (row.step, row.masked) == (other.step, other.masked)
        if row.advantage is not None:
            assert other.advantage == pytest.approx(row.advantage, abs=1e-15, rel=1e-15)
        if switches["method"] != "dpepo":
            assert other == row


@settings(max_examples=60, deadline=None)
@given(random_trees(), every(form="paper", outcome="score", rewards="outcome"))
def test_the_order_of_siblings_changes_no_bit_of_a_score(grown: Tree, switches: dict[str, Any]) -> None:
    """Rewards whose sums round: .1, .2, ... in another order of creation."""
    for number, each in enumerate(grown.steps):
        each.reward = 0.1 * (number + 1)
    other, new = reordered(grown, list(range(len(grown.steps)))[::-1])
    computed = sorted((row.step, row.advantage or 0.0) for row in credit_of(other, switches).steps)
    assert computed == sorted((new[row.step], row.advantage or 0.0) for row in credit_of(grown, switches).steps)


def test_a_score_that_is_too_large_is_refused() -> None:
    grown = answers()
    grown.steps[2].reward = 1e9
    with pytest.raises(DataError) as caught:
        credit_of(grown, {"method": "grpo", "outcome": "score", "success_reward": 10.0})
    assert str(caught.value).startswith("task t: steps[2]: ")
    assert "credit.success_reward" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("outcome", "equal"), [("success", 0), ("score", 1)])
def test_trees_with_equal_scores_are_counted(outcome: str, equal: int) -> None:
    statistics = CreditStatistics(outcome)
    grown = outcomes([1, 2], [SUCCESS, FAILURE])
    grown.steps[0].reward = grown.steps[1].reward = 0.5
    statistics.add(grown, credit_of(grown, {"method": "grpo", "outcome": outcome}))
    assert statistics.summary()["groups_all_equal"] == equal
