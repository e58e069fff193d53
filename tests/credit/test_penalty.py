"""Penalties inside the normalisation, which can grow, and outside of it, which cannot."""

from typing import Any

import pytest
from agentcli.credit.registry import METHODS, switches_class
from agentcli.records.types import Tree, Validity
from credit_trees import FAILURE, outcomes, random_trees
from hypothesis import given, settings
from hypothesis import strategies as st
from test_credit_properties import credit_of, every
from test_explain import explanation, lines_of

NORMALISING = ("grpo", "rloo", "gigpo", "rewardflow", "spark", "arpo", "treerpo", "rlvmr", "dpepo", "grpo-prm")


def failures() -> Tree:
    """Eight failures of ten steps each, one step of all invalid; states as in the same world."""
    grown = outcomes([10] * 8, [FAILURE] * 8, invalid={(3, 4)})
    for number, each in enumerate(grown.steps):
        each.state, each.next_state = f"s{number % 10}", f"s{number % 10 + 1}"
    return grown


def test_inside_one_penalty_among_equal_outcomes_becomes_many_stds() -> None:
    # Weights 1/10, W = 8: mean = -.1 * .1 / 8 = -.00125; variance = (.1 * .09875^2 + 7.9 * .00125^2) / 7 = .000141071...
    variance = (0.1 * 0.09875**2 + 7.9 * 0.00125**2) / 7
    credit = credit_of(failures(), {"method": "grpo"})
    assert credit.steps[34].advantage == pytest.approx(-0.09875 / (variance**0.5 + 1e-6))
    assert (credit.steps[34].advantage or 0) < -8


@pytest.mark.parametrize("method", [*NORMALISING, "carl", "treerl"])
@pytest.mark.parametrize("form", ["paper", "release"])
def test_a_masked_step_costs_nobody_a_penalty(method: str, form: str) -> None:
    """Its own row has no advantage, so its penalty would only lift the others."""
    if form == "release" and "form" not in switches_class(method).__struct_fields__:
        return
    grown = failures()
    grown.steps[34].mask = "a model that is not trained"
    chosen = {"form": form} if form == "release" else {}
    charged = credit_of(grown, {"method": method, "invalid_penalty": 0.1, **chosen})
    assert charged == credit_of(grown, {"method": method, "invalid_penalty": 0.0, **chosen})


@pytest.mark.parametrize("method", NORMALISING)
def test_outside_a_group_of_equal_outcomes_gives_the_penalty_and_zeros(method: str) -> None:
    grown = failures()
    credit = credit_of(grown, {"method": method, "penalty": "outside", "invalid_penalty": 0.1})
    assert [row.advantage for row in credit.steps] == [-0.1 if row.step == 34 else 0.0 for row in credit.steps]
    assert [row.parts["charge"] for row in credit.steps] == [0.1 if row.step == 34 else 0.0 for row in credit.steps]
    told = explanation(grown, {"method": method, "penalty": "outside", "invalid_penalty": 0.1}, 34)
    assert lines_of(told)["advantage"].formula == "uncharged - charge"
    assert lines_of(told)["charge"].value == 0.1


@settings(max_examples=150, deadline=None)
@given(random_trees(), every(NORMALISING, form="paper"), st.sampled_from([0.1, 0.25, 2.0]))
def test_outside_a_penalty_costs_itself_and_nobody_else(grown: Tree, switches: dict[str, Any], penalty: float) -> None:
    """Against the same method without penalties: the difference is the penalty on invalid steps and 0 on all others."""
    charged = credit_of(grown, {**switches, "penalty": "outside", "invalid_penalty": penalty})
    free = credit_of(grown, {**switches, "penalty": "inside", "invalid_penalty": 0.0})
    for row, plain in zip(charged.steps, free.steps, strict=True):
        invalid = grown.steps[row.step].validity is not Validity.VALID
        assert (row.step, row.masked) == (plain.step, plain.masked)
        if plain.advantage is not None:
            assert row.advantage == plain.advantage - penalty * invalid
            assert row.parts == {**plain.parts, "charge": penalty * invalid}


def test_every_other_method_divides_by_nothing_and_has_no_such_switch() -> None:
    assert set(METHODS) - set(NORMALISING) == {"carl", "treerl", "ppo", "rare-tool"}
