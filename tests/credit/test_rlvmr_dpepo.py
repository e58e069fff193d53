"""rlvmr and dpepo in the paper form: arithmetic done by hand."""

import math
from typing import Any

import pytest
from agentcli.credit import dpepo, grpo, rlvmr
from agentcli.credit.dpepo import DpepoSettings
from agentcli.credit.rlvmr import RlvmrSettings
from agentcli.records.types import Credit, Move, Outcome, Tree, Validity
from credit_trees import ERRORED, FAILURE, SUCCESS, advantages, chains, move, step, tree
from refusal import refused

PLAIN = RlvmrSettings(normalise="mean", w=1.0, invalid_penalty=0.0)


def part(credit: Credit, name: str) -> list[float]:
    return [row.parts[name] for row in credit.steps]


def tagged(
    end: Outcome, *steps: tuple[str | None, str | None] | tuple[str | None, str | None, Validity]
) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = [
        {"tag": tag, "action": action, **({"validity": rest[0]} if rest else {})} for tag, action, *rest in steps
    ]
    fields[-1]["outcome"] = end
    return fields


def test_planning_pays_where_the_episode_succeeds() -> None:
    # Planning rewards 1 and 0 (mean 1/2), think steps have none.
    grown = chains(
        [tagged(SUCCESS, ("planning", "a"), ("think", "b")), tagged(FAILURE, ("planning", "a"), ("think", "b"))]
    )
    credit = rlvmr.assign(grown, PLAIN)
    assert part(credit, "tag_reward") == [1, 0, 0, 0]
    assert part(credit, "tag") == [0.5, 0.0, -0.5, 0.0]
    assert advantages(credit) == [1.0, 0.5, -1.0, -0.5]
    # std of 1 and 0 is sqrt(1/2), for the outcomes as for the tag; w 1/2.
    unit = 0.5 / (math.sqrt(0.5) + 1e-6)
    assert advantages(rlvmr.assign(grown, RlvmrSettings())) == pytest.approx(
        [unit + 0.5 * unit, unit, -unit - 0.5 * unit, -unit], abs=1e-12
    )


def test_exploring_pays_where_the_action_is_new_in_the_trajectory() -> None:
    bad = Validity.INADMISSIBLE
    steps = [("explore", "a"), ("explore", "b", bad), ("explore", "b"), ("explore", "a"), ("explore", "c")]
    credit = rlvmr.assign(chains([tagged(FAILURE, *steps)]), PLAIN)
    # a is new; b is refused, and tried when it comes again; a was done; c is new. An invalid step has no tag: the group is four.
    assert part(credit, "tag_reward") == [1, 0, 0, 0, 1]
    assert part(credit, "tag") == [0.5, 0.0, -0.5, -0.5, 0.5]


def test_reflecting_pays_after_an_invalid_step_and_with_another_action() -> None:
    bad, lost = Validity.INADMISSIBLE, Validity.MALFORMED
    trajectories = [
        tagged(FAILURE, ("reflection", "a"), ("think", "b", bad), ("reflection", "c"), ("reflection", "d")),
        tagged(FAILURE, ("think", "b", bad), ("reflection", "b"), ("think", None, lost), ("reflection", "b")),
    ]
    credit = rlvmr.assign(chains(trajectories), PLAIN)
    assert part(credit, "tag_reward") == [0, 0, 1, 0, 0, 0, 0, 1]


def test_a_shared_plan_earns_the_share_of_its_leaves_that_succeed() -> None:
    steps = [
        step(0, None, tag="planning"),
        step(1, 0, tag="explore", action="x", outcome=SUCCESS),
        step(2, 0, tag="explore", action="go 0", outcome=FAILURE),
        step(3, 0, tag="explore", action="x", outcome=FAILURE),
        step(4, None, tag="planning", outcome=ERRORED),
    ]
    credit = rlvmr.assign(tree(*steps), PLAIN)
    # The plan is alone with its tag (the other errored). Step 2 repeats step 0; 1 and 3 are on paths of their own: 1 0 1, mean 2/3.
    assert [row.parts.get("tag_reward") for row in credit.steps] == [pytest.approx(1 / 3), 1, 0, 1, None]
    assert [row.parts.get("tag") for row in credit.steps[:4]] == pytest.approx([0.0, 1 / 3, -2 / 3, 1 / 3])
    doubled = rlvmr.assign(tree(*steps), RlvmrSettings(normalise="mean", w=1.0, prefix="duplicate"))
    assert [row.parts.get("tag_reward") for row in doubled.steps] == [1, 1, 0, 0, 0, 1, None]


def parallel(*trajectories: tuple[Outcome, list[list[Move]]]) -> Tree:
    return chains(
        [
            [
                {"moves": moves, "action": None, "outcome": end if t == len(steps) - 1 else None}
                for t, moves in enumerate(steps)
            ]
            for end, steps in trajectories
        ]
    )


def weights(*steps: list[Move], **switches: Any) -> list[float]:
    """R_step of every step of one trajectory."""
    return part(dpepo.assign(parallel((FAILURE, list(steps))), DpepoSettings(**switches)), "step")


def test_a_step_that_repeats_nothing_has_reward_two() -> None:
    assert weights([move(1, "go"), move(2, "take")]) == [2.0]


def test_repeating_an_action_elsewhere_in_one_copy() -> None:
    # go again in copy 1, from another state: alpha^1 = .8; the rest is 1. R_action .8 + 1, R_transition 1 + 1.
    assert weights([move(1, "go", "s")], [move(1, "go", "t")])[1] == pytest.approx((0.8 + 1 + 1 + 1) / 2)
    # From the same state the transition recurs too: gamma^1 = .95.
    assert weights([move(1, "go", "s")], [move(1, "go", "s")])[1] == pytest.approx((0.8 + 1 + 0.95 + 1) / 2)


def test_the_same_action_in_two_copies_at_once() -> None:
    # From different states: C_width 1 (omega .95). From the same state each has also seen the other's transition (beta .95).
    assert weights([move(1, "go", "s"), move(2, "go", "t")]) == pytest.approx([(1 + 0.95 + 1 + 1) / 2])
    assert weights([move(1, "go", "s"), move(2, "go", "s")]) == pytest.approx([(1 + 0.95 + 1 + 0.95) / 2])


def test_a_transition_another_selected_copy_has_seen() -> None:
    # Copy 2 does in s what copy 1 did in s before. It counts only when copy 1 is selected too, and once however often it was.
    before = [[move(1, "go", "s")], [move(1, "go", "s")]]
    alone = weights(*before, [move(2, "go", "s")])[2]
    assert alone == 2.0
    both = weights(*before, [move(1, "look", "t"), move(2, "go", "s")])[2]
    assert both == pytest.approx((1 + 1 + 1 + (1 + 0.95) / 2) / 2)


def test_one_reward_or_the_other_left_out() -> None:
    """DPEPO Tables 2 and 4. go again in copy 1 from the same state: alpha .8 and gamma .95; go in two copies from one
    state at once: omega .95 and beta .95 each."""
    again = [move(1, "go", "s")], [move(1, "go", "s")]
    assert weights(*again, transition_reward=False) == pytest.approx([2.0, 0.8 + 1])
    assert weights(*again, action_reward=False) == pytest.approx([2.0, 0.95 + 1])
    both = [move(1, "go", "s"), move(2, "go", "s")]
    assert weights(both, transition_reward=False) == pytest.approx([1 + 0.95])
    assert weights(both, action_reward=False) == pytest.approx([1 + 0.95])
    refused = [move(1, "zap", validity=Validity.INADMISSIBLE)]
    assert weights(refused, transition_reward=False, invalid_factor=0.5) == [1.0]
    assert weights([], action_reward=False) == [0.5]


def test_without_both_rewards_it_is_grpo_and_with_coefficients_of_one_it_is_not() -> None:
    steps = [[move(1, "go")], [move(1, "go")], []]
    grown = parallel((SUCCESS, steps), (FAILURE, steps), (FAILURE, steps[:1]))
    plain = dpepo.assign(grown, DpepoSettings(action_reward=False, transition_reward=False))
    assert advantages(plain) == advantages(grpo.assign(grown, grpo.GrpoSettings(invalid_penalty=0.0)))
    assert part(plain, "step") == [1.0] * 7
    # The trap: R_step 2 everywhere, so successes count twice and failures not at all.
    ones = dpepo.assign(grown, DpepoSettings(alpha=1.0, omega=1.0, gamma=1.0, beta=1.0))
    doubled = [2 * (value or 0.0) for value in advantages(plain)[:2]]
    assert advantages(ones)[:2] == pytest.approx(doubled)
    assert advantages(ones)[3:5] == [0.0, 0.0]


def test_no_readable_action_and_refused_ones() -> None:
    assert weights([]) == [0.5]
    assert weights([move(5, "go", validity=Validity.MALFORMED)]) == [0.5]
    refused = [move(1, "zap", validity=Validity.INADMISSIBLE), move(2, "go", validity=Validity.INADMISSIBLE)]
    assert weights(refused) == [2.0]
    assert weights(refused, invalid_factor=0.5) == [0.5]
    assert weights(refused, invalid_factor=0.5, form="release") == pytest.approx([(1 + 1 + 0.25) / 3])


def test_a_step_in_one_environment_is_one_move() -> None:
    grown = chains(
        [[{"state": "s", "action": "go"}, {"state": "s", "action": "go"}, {"action": None, "outcome": FAILURE}]]
    )
    assert part(dpepo.assign(grown, DpepoSettings()), "step") == pytest.approx([2.0, (0.8 + 1 + 0.95 + 1) / 2, 0.5])


def test_good_trajectories_gain_and_bad_ones_lose_less_by_diversity() -> None:
    # Outcomes 1 0, mean 1/2 taken: Phi 1/2 and -1/2. R_step 2 of each first step: 2 * 1/2 and (2 - 2) * -1/2.
    # The second steps repeat: R_step (.8 + 1 + .95 + 1) / 2 = 1.875.
    steps = [[move(1, "go")], [move(1, "go")]]
    credit = dpepo.assign(parallel((SUCCESS, steps), (FAILURE, steps)), DpepoSettings(normalise="mean"))
    assert advantages(credit) == pytest.approx([1.0, 1.875 / 2, 0.0, -0.125 / 2], abs=1e-12)
    assert part(credit, "trajectory") == [0.5, 0.5, -0.5, -0.5]
    released = dpepo.assign(
        parallel((SUCCESS, steps), (FAILURE, steps)), DpepoSettings(form="release", normalise="mean")
    )
    # W: 1, then (1 + (.8 + 1 + 1) / 3) / 2 = 29/30: no pair of actions recurs yet.
    assert advantages(released) == pytest.approx([0.5, 29 / 60, -0.5, -31 / 60], abs=1e-12)


def test_a_shared_step_takes_the_mean_over_its_leaves() -> None:
    # Step 0 (R_step 2) lies below a success and a failure, Phi 1/2 and -1/2: (2 * 1/2 + 0 * -1/2) / 2.
    steps = [
        step(0, None, action=None, moves=[move(1, "go")]),
        step(1, 0, action=None, moves=[move(1, "go")], outcome=SUCCESS),
        step(2, 0, action=None, moves=[move(1, "take")], outcome=FAILURE),
    ]
    credit = dpepo.assign(tree(*steps), DpepoSettings(normalise="mean"))
    assert advantages(credit) == pytest.approx([0.5, 1.875 / 2, 0.0], abs=1e-12)
    assert credit.steps[0].parts["trajectory"] == 0.0


def test_dpepo_refuses_a_tree_without_state_keys() -> None:
    grown = chains([[{"state": ""}, {"state": "", "outcome": SUCCESS}]])
    refused(lambda: dpepo.assign(grown, DpepoSettings()), 3, names="steps[0].state")
