"""grpo-prm by hand: RewardFlow eq. 5-9 with the score of a process reward model for the gain of the graph."""

import math

import msgspec
import pytest
from agentcli.credit.grpo_prm import GrpoPrmSettings, assign
from agentcli.credit.registry import make
from agentcli.records.types import Tree, Validity
from credit_trees import ERRORED, FAILURE, SUCCESS, advantages, chains, random_trees
from hypothesis import given
from hypothesis import strategies as st
from refusal import refused
from test_credit_properties import credit_of


def two_doors(**third: object) -> Tree:
    """Three trajectories leave the hall with scores .9, .3 and .6; the first goes on to the kitchen and succeeds."""
    return chains(
        [
            [{"state": "hall", "score": 0.9}, {"state": "kitchen", "score": 0.8, "outcome": SUCCESS}],
            [{"state": "hall", "score": 0.3, "outcome": FAILURE}],
            [{"state": "hall", "score": 0.6, "outcome": FAILURE, **third}],
        ]
    )


def test_scores_of_one_state_are_compared_beside_the_outcomes() -> None:
    # Outcomes 1, 0, 0: mean 1/3, std sqrt(1/3). Scores in the hall: mean .6, std .3; the kitchen is left once.
    std = math.sqrt(1 / 3) + 1e-6
    won, lost = (1 - 1 / 3) / std, -(1 / 3) / std
    better = 0.3 / (0.3 + 1e-6)
    assert advantages(assign(two_doors(), GrpoPrmSettings())) == pytest.approx([better + won, won, lost - better, lost])


def test_the_weights_leave_either_part_out() -> None:
    alone = advantages(assign(two_doors(), GrpoPrmSettings(alpha_traj=0.0, normalise="mean")))
    assert alone == pytest.approx([0.3, 0.0, -0.3, 0.0])
    outcomes = advantages(assign(two_doors(), GrpoPrmSettings(alpha_action=0.0)))
    assert outcomes == advantages(credit_of(two_doors(), {"method": "grpo"}))


def test_an_invalid_step_is_charged_in_its_state() -> None:
    grown = two_doors(validity=Validity.MALFORMED)
    settings = GrpoPrmSettings(alpha_traj=0.0, normalise="mean", invalid_penalty=0.3)
    # .9, .3 and .6 - .3: mean .5
    assert advantages(assign(grown, settings)) == pytest.approx([0.4, 0.0, -0.2, -0.2])


@given(random_trees(), st.floats(-100, 100), st.floats(0.5, 20))
def test_the_scale_of_a_process_reward_model_does_not_matter(grown: Tree, shift: float, factor: float) -> None:
    settings = GrpoPrmSettings(invalid_penalty=0.0)
    before = assign(grown, settings)
    for step in grown.steps:
        step.score = shift + factor * float(step.score)  # type: ignore[arg-type]
    after = assign(grown, settings)
    for one, other in zip(before.steps, after.steps, strict=True):
        assert one.masked == other.masked
        if one.advantage is not None:
            assert other.advantage == pytest.approx(one.advantage, abs=1e-3)


def test_a_step_without_a_score_is_refused_but_for_an_errored_one() -> None:
    grown = two_doors()
    grown.steps[1].score = msgspec.UNSET
    refused(lambda: assign(grown, GrpoPrmSettings()), 3, ("steps[1].score", "t"), "--prm DIR")
    grown.steps[1].outcome = ERRORED
    assert [row.advantage is None for row in assign(grown, GrpoPrmSettings()).steps] == [True, True, False, False]


def test_a_switch_of_its_neighbours_is_refused() -> None:
    refused(lambda: make({"method": "grpo-prm", "gamma": 0.9}), 2, "credit.gamma")
    refused(lambda: make({"method": "rare-tool", "form": "paper"}), 2, "credit.form", "process_sign")
