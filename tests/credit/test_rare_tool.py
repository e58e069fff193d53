"""The reward of Rare-tool section 3.3, by hand."""

import credit_trees
import pytest
from agentcli.credit.rare_tool import RareToolSettings, assign
from agentcli.records.types import Outcome, Step, Tree, Validity
from hypothesis import given
from hypothesis import strategies as st
from refusal import refused


def tree(*steps: Step, outcome: Outcome = Outcome.SUCCESS) -> Tree:
    steps[-1].outcome = outcome
    grown = credit_trees.tree(*steps)
    grown.method = "rare-tool"
    return grown


def step(number: int, **notes: float) -> Step:
    return credit_trees.step(number, number - 1 if number else None, action=None, notes=notes)


def judged(number: int, chosen: float, best: float, process_ok: float = 1.0) -> Step:
    return step(number, chosen=chosen, best=best, process_ok=process_ok)


def rewards(grown: Tree, **settings: object) -> list[float | None]:
    return [entry.advantage for entry in assign(grown, RareToolSettings(**settings)).steps]  # type: ignore[arg-type]


def table_one() -> Tree:
    return tree(judged(0, 6.2, 7.5), judged(1, 6.0, 6.0), judged(2, 8.1, 8.1))


def test_the_rows_of_table_1() -> None:
    assert rewards(table_one()) == pytest.approx([0.5 * 0.13 + 0.5, 0.5, 0.5])
    assert rewards(table_one(), rho=1.0) == pytest.approx([0.13, 0.0, 0.0])
    assert rewards(table_one(), rho=0.0) == [1.0, 1.0, 1.0]


def test_the_printed_sign_punishes_what_is_reasonable() -> None:
    grown = tree(judged(0, 6.2, 7.5), judged(1, 6.0, 6.0, process_ok=0.0))
    assert rewards(grown, process_sign="minus") == pytest.approx([0.5 * 0.13 - 0.5, 0.0])
    assert rewards(grown) == pytest.approx([0.5 * 0.13 + 0.5, 0.0])


def test_the_printed_equation_has_scores_from_0_to_10() -> None:
    grown = tree(judged(0, 6.2, 7.5), judged(1, 6.0, 6.0, process_ok=0.0))
    printed = rewards(grown, process_sign="minus", score_scale=1)
    assert printed == pytest.approx([0.5 * 1.3 - 0.5, 0.0])


@given(st.floats(0, 10), st.floats(0, 10), st.booleans(), st.floats(0, 1))
def test_the_reward_lies_between_0_and_1(one: float, other: float, ok: bool, rho: float) -> None:
    chosen, best = sorted((one, other))
    (reward,) = rewards(tree(judged(0, chosen, best, float(ok))), rho=rho)
    assert reward is not None
    assert 0 <= reward <= 1


def test_filters() -> None:
    unsound = tree(judged(0, 6, 7), judged(1, 6, 7, process_ok=0.0))
    assert [reward is None for reward in rewards(unsound, drop_unsound=True)] == [False, True]
    wrong = tree(judged(0, 6, 7), judged(1, 6, 7), outcome=Outcome.FAILURE)
    assert rewards(wrong, drop_wrong=True) == [None, None]
    assert None not in rewards(wrong)


def test_a_malformed_step_and_an_errored_trajectory_have_no_reward() -> None:
    unreadable = step(0)
    unreadable.validity = Validity.MALFORMED
    assert rewards(tree(unreadable, judged(1, 6, 7)))[0] is None
    assert rewards(tree(judged(0, 6, 7), outcome=Outcome.ERRORED)) == [None]


@pytest.mark.parametrize("notes", [{}, {"parsed": 1.0}])
def test_a_response_whose_action_is_no_call_has_no_reward(notes: dict[str, float]) -> None:
    """No judge is asked about `kilowatt_hour]`, also where a parser read it; the steps after it were judged."""
    no_call = step(0, **notes)
    no_call.validity = Validity.INADMISSIBLE
    grown = tree(no_call, judged(1, 6.0, 6.0))
    assert rewards(grown) == [None, 0.5]
    grown.method = "chain"
    refused(lambda: assign(grown, RareToolSettings()), 3, names="steps[0].notes.best")


@pytest.mark.parametrize("missing", ["chosen", "best", "process_ok"])
def test_trees_that_no_judge_saw(missing: str) -> None:
    grown = tree(judged(0, 6, 7))
    del grown.steps[0].notes[missing]
    refused(lambda: assign(grown, RareToolSettings()), 3, f"steps[0].notes.{missing}")


def test_return_is_what_a_critic_learns() -> None:
    (entry,) = assign(tree(judged(0, 6.2, 7.5)), RareToolSettings()).steps
    assert entry.parts["return"] == entry.advantage
    assert (entry.parts["best"], entry.parts["chosen"]) == (0.75, 0.62)
