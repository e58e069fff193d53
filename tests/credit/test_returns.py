"""gigpo and ppo, and the returns below them: arithmetic done by hand."""

import math

import pytest
from agentcli.credit import gigpo, grpo, ppo
from agentcli.credit.returns import path_estimates
from agentcli.errors import DataError
from agentcli.records.types import Credit, Outcome, Tree
from credit_trees import ERRORED, FAILURE, SUCCESS, TRUNCATED, advantages, chains, step, tree, walk
from refusal import refused

GIGPO = gigpo.GigpoSettings


def part(credit: Credit, name: str) -> list[float]:
    return [row.parts[name] for row in credit.steps]


def returns(rewards: list[float], chosen: list[bool], gamma: float) -> list[float]:
    values, advantages = path_estimates(rewards, [0.0] * len(rewards), chosen, gamma, 1.0)
    return [value + advantage for value, advantage in zip(values, advantages, strict=True)]


def test_a_masked_position_carries_the_return_through() -> None:
    """verl issue 6376."""
    assert returns([0, 0, 1], [True, False, True], 0.5) == [0.5, 1.0, 1.0]
    assert returns([0, 0, 1], [True, True, True], 0.5) == [0.25, 0.5, 1.0]
    # Its own reward counts for what was chosen before it: .5 (2 + 1).
    assert returns([0, 2, 1], [True, False, True], 0.5) == [1.5, 3.0, 1.0]
    assert returns([], [], 0.5) == []


@pytest.mark.parametrize("prefix", ["merge", "duplicate"])
def test_gigpo_and_ppo_carry_through_steps_that_were_not_chosen(prefix: str) -> None:
    """The same on a tree: the step in the middle was put in the policy's way."""
    grown = chains([walk("abcd", SUCCESS)])
    grown.steps[1].mask = "noise"
    for each in grown.steps:
        each.value = 0.0
    credit = gigpo.assign(grown, GIGPO(gamma=0.5, prefix=prefix))
    assert [row.parts.get("return") for row in credit.steps] == [0.5, None, 1.0]
    assert [row.masked for row in credit.steps] == [None, "noise", None]
    credit = ppo.assign(grown, ppo.PpoSettings(gamma=0.5, gae_lambda=1.0, prefix=prefix))
    assert advantages(credit) == [0.5, None, 1.0]


def test_gigpo_by_hand() -> None:
    # a -> b -> success and a -> a -> c, truncated; gamma 1/2. Returns 1/2 1 | 0 0.
    # Group a: 1/2 0 0, mean 1/6, differences 1/3 -1/6 -1/6, std sqrt((4 + 1 + 1) / 36 / 2) = sqrt(1/12). b alone: 0.
    grown = chains([walk("abd", SUCCESS), walk("aac", TRUNCATED)])
    credit = gigpo.assign(grown, GIGPO(gamma=0.5))
    assert part(credit, "return") == [0.5, 1.0, 0.0, 0.0]
    std = math.sqrt(1 / 12) + 1e-6
    assert part(credit, "step") == pytest.approx([1 / 3 / std, 0, -1 / 6 / std, -1 / 6 / std], abs=1e-12)
    # Outcomes 1 0: mean 1/2, std sqrt(1/2).
    outcome = 0.5 / (math.sqrt(0.5) + 1e-6)
    assert part(credit, "trajectory") == pytest.approx([outcome, outcome, -outcome, -outcome])
    plain = gigpo.assign(grown, GIGPO(gamma=0.5, normalise="mean", w=3.0))
    assert advantages(plain) == pytest.approx([0.5 + 1, 0.5, -0.5 - 0.5, -0.5 - 0.5], abs=1e-12)
    mixed = gigpo.assign(grown, GIGPO(gamma=0.5, scale="none"))
    assert part(mixed, "step") == pytest.approx([1 / 3, 0, -1 / 6, -1 / 6], abs=1e-12)


def test_gigpo_charges_a_penalty_after_discounting() -> None:
    # Two failures from a, the first invalid: scores -.1 and 0, mean -.05. Its return stays 0.
    grown = chains([walk("ab", FAILURE, invalid={0}), walk("ac", FAILURE)])
    credit = gigpo.assign(grown, GIGPO(normalise="mean"))
    assert part(credit, "return") == [0.0, 0.0]
    assert part(credit, "step") == pytest.approx([-0.05, 0.05], abs=1e-12)
    assert advantages(credit) == pytest.approx([-0.1, 0.1], abs=1e-12)


def shared(*more: Outcome) -> Tree:
    """a -> b, then b -> success and b -> c -> failure; beside it a -> failure."""
    steps = [
        step(0, None, state="a"),
        step(1, 0, state="b", outcome=SUCCESS),
        step(2, 0, state="b"),
        step(3, 2, state="c", outcome=FAILURE),
        step(4, None, state="a", outcome=FAILURE),
    ]
    return tree(*steps, *(step(5 + n, None, state="a", outcome=end) for n, end in enumerate(more)))


def test_gigpo_merges_and_duplicates_a_prefix() -> None:
    # gamma 1/2: step 0 returns 1/2 under its first leaf and 0 under its second, merged 1/4. Group a merged: 1/4 0, mean 1/8;
    # duplicated: 1/2 0 0, mean 1/6. Group b: 1 0.
    merged = gigpo.assign(shared(), GIGPO(gamma=0.5, normalise="mean"))
    assert part(merged, "return") == [0.25, 1.0, 0.0, 0.0, 0.0]
    assert part(merged, "step") == pytest.approx([1 / 8, 0.5, -0.5, 0.0, -1 / 8], abs=1e-12)
    doubled = gigpo.assign(shared(), GIGPO(gamma=0.5, normalise="mean", prefix="duplicate"))
    assert [row.step for row in doubled.steps] == [0, 1, 0, 2, 3, 4]
    assert part(doubled, "step") == pytest.approx([1 / 3, 0.5, -1 / 6, -0.5, 0.0, -1 / 6], abs=1e-12)


def test_gigpo_leaves_errored_trajectories_out() -> None:
    credit = gigpo.assign(shared(ERRORED), GIGPO())
    assert credit.steps[:5] == gigpo.assign(shared(), GIGPO()).steps
    assert credit.steps[5].masked == "errored"


def test_gigpo_discounts_the_worlds_own_rewards_when_asked() -> None:
    # Rewards .2 .4 1: returns .2 + .5 (.4 + .5) = .65, .9, 1.
    grown = chains([walk("abcd", FAILURE)])
    for each, reward in zip(grown.steps, (0.2, 0.4, 1.0), strict=True):
        each.reward = reward
    assert part(gigpo.assign(grown, GIGPO(gamma=0.5, rewards="environment")), "return") == pytest.approx(
        [0.65, 0.9, 1.0]
    )


def test_gigpo_refuses_trees_without_state_keys() -> None:
    grown = chains([walk("ab", SUCCESS), walk("ac", FAILURE)])
    grown.steps[1].state = ""
    with pytest.raises(DataError) as caught:
        gigpo.assign(grown, GIGPO())
    assert str(caught.value).startswith("task t: steps[1].state: ")
    assert "is empty; gigpo " in str(caught.value)
    assert "\n" not in str(caught.value)
    grown.steps[1].outcome = ERRORED
    assert gigpo.assign(grown, GIGPO()).steps[1].masked == "errored"


@pytest.mark.parametrize("turns", [0, 1, 2, 7])
def test_the_stopping_turn_does_not_decide_how_many_baselines_are_subtracted(turns: int) -> None:
    """verl issue 7244. In a the policy stops, worth 1, or goes on: .25 at once and .25 at the end, `turns` idle turns later. What
    the choice is worth against the other is 1 - .5, whatever comes in between; one baseline per turn would take more."""
    fields = [walk("az", FAILURE), walk("a" + "bcdefgh"[:turns] + "yz", FAILURE)]
    fields[0][0].update(reward=1.0, value=0.75)
    fields[1][0].update(reward=0.25, value=0.75)
    fields[1][-1].update(reward=0.25)
    for each in fields[1][1:]:
        each["value"] = 0.4
    grown = chains(fields)
    credit = gigpo.assign(grown, GIGPO(gamma=1.0, normalise="mean", rewards="environment"))
    assert part(credit, "step")[:2] == pytest.approx([0.25, -0.25], abs=1e-12)
    settings = ppo.PpoSettings(gamma=1.0, gae_lambda=1.0, rewards="environment")
    assert advantages(ppo.assign(grown, settings))[:2] == pytest.approx([0.25, -0.25], abs=1e-12)


def valued(values: list[float], end: Outcome = SUCCESS) -> Tree:
    grown = chains([walk("abcdef"[: len(values) + 1], end)])
    for each, value in zip(grown.steps, values, strict=True):
        each.value = value
    return grown


def test_ppo_by_hand() -> None:
    # V .5 .6 .9, success; gamma .5, lambda .5. delta: .5 * .6 - .5 = -.2; .5 * .9 - .6 = -.15; 1 - .9 = .1.
    # A: .1; -.15 + .25 * .1 = -.125; -.2 + .25 * -.125 = -.23125.
    credit = ppo.assign(valued([0.5, 0.6, 0.9]), ppo.PpoSettings(gamma=0.5, gae_lambda=0.5))
    assert advantages(credit) == pytest.approx([-0.23125, -0.125, 0.1], abs=1e-12)
    assert part(credit, "return") == pytest.approx([0.26875, 0.475, 1.0], abs=1e-12)


def test_ppo_lambda_is_between_one_step_and_the_whole_return() -> None:
    one_step = ppo.assign(valued([0.5, 0.6, 0.9]), ppo.PpoSettings(gae_lambda=0.0))
    assert advantages(one_step) == pytest.approx([0.1, 0.3, 0.1], abs=1e-12)
    whole = ppo.assign(valued([0.5, 0.6, 0.9]), ppo.PpoSettings(gae_lambda=1.0, success_reward=2.0))
    assert advantages(whole) == pytest.approx([1.5, 1.4, 1.1], abs=1e-12)


def test_ppo_takes_nothing_from_beyond_the_horizon() -> None:
    credit = ppo.assign(valued([0.5, 0.6], TRUNCATED), ppo.PpoSettings(gae_lambda=0.0))
    assert advantages(credit) == pytest.approx([0.1, -0.6], abs=1e-12)


def test_ppo_on_a_forked_tree() -> None:
    # gamma = lambda = 1: A = R - V. Step 0 (V .25) has leaves 1 and 0: merged .5 - .25, duplicated .75 and -.25.
    grown = shared()
    for each in grown.steps:
        each.value = 0.25
    merged = ppo.assign(grown, ppo.PpoSettings(gae_lambda=1.0))
    assert advantages(merged) == pytest.approx([0.25, 0.75, -0.25, -0.25, -0.25], abs=1e-12)
    doubled = ppo.assign(grown, ppo.PpoSettings(gae_lambda=1.0, prefix="duplicate"))
    assert advantages(doubled) == pytest.approx([0.75, 0.75, -0.25, -0.25, -0.25, -0.25], abs=1e-12)


def test_ppo_charges_a_penalty_to_its_step_and_its_return() -> None:
    grown = chains([walk("abc", FAILURE, invalid={1})])
    for each in grown.steps:
        each.value = 0.0
    credit = ppo.assign(grown, ppo.PpoSettings())
    assert advantages(credit) == [0.0, -0.1]
    assert part(credit, "return") == [0.0, -0.1]


def test_ppo_refuses_trees_without_values() -> None:
    grown = valued([0.5, 0.6, 0.9])
    grown.steps[1].value = None
    refused(lambda: ppo.assign(grown, ppo.PpoSettings()), 3, ("task t", "steps[1].value"), remedy="--critic")
    grown.steps[1].value = math.nan
    refused(lambda: ppo.assign(grown, ppo.PpoSettings()), 3, names="steps[1].value")
    grown.steps[1].value, grown.steps[2].outcome = None, ERRORED
    assert advantages(ppo.assign(grown, ppo.PpoSettings())) == [None, None, None]


def test_gigpo_without_step_weight_is_grpo() -> None:
    assert advantages(gigpo.assign(shared(), GIGPO(w=0.0))) == advantages(grpo.assign(shared(), grpo.GrpoSettings()))
