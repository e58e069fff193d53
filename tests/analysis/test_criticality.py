"""Criticality: closed forms, what counts as a draw, and when entropy tells."""

from math import sqrt
from statistics import fmean

import msgspec
import pytest
from agentcli.analysis.criticality import examined, measure
from agentcli.records.types import Outcome, Tree
from credit_trees import FAILURE, chains, walk
from deciding import Drawn, grow_critical
from hypothesis import given
from hypothesis import strategies as st

GREEDY = {("a",): "win", ("b",): "die"}


def one_decision(draws: list[tuple[str, float]]) -> Tree:
    """The trajectory a, win; the first action is drawn again as listed, the second always wins."""
    drawn: Drawn = {(): [("a", 0.5), *draws], ("a",): [("win", 0.5)] * (1 + len(draws))}
    return grow_critical(drawn, GREEDY, draws=len(draws))


def test_a_decision_and_a_step_that_decides_nothing() -> None:
    """Two of four draws win: the deviation of a fair coin. The second step wins whatever chance does."""
    first, second = examined(one_decision([("a", 0.25), ("b", 0.75), ("a", 1.0), ("b", 2.0)]))
    assert first == ("a", 1, 0.5, 1.0)
    assert second == ("win", 2, 0.0, 0.5)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 8)), min_size=2, max_size=7))
def test_criticality_is_the_deviation_of_a_bernoulli_draw(draws: list[tuple[str, float]]) -> None:
    """Eq. 5 where rewards are 0 and 1: sqrt(p (1 - p)); eq. 7: the mean surprise of the draws."""
    first, _ = examined(one_decision(draws))
    share = fmean(action == "a" for action, _ in draws)
    assert first.criticality == pytest.approx(sqrt(share * (1 - share)))
    assert first.entropy == pytest.approx(fmean(surprise for _, surprise in draws))


def test_the_trajectory_itself_is_no_draw() -> None:
    """It wins, and every draw loses: nothing is decided by chance."""
    first, _ = examined(one_decision([("b", 0.5), ("b", 0.5)]))
    assert first.criticality == 0


def test_draws_that_errored_count_nowhere() -> None:
    tree = one_decision([("a", 0.5), ("b", 0.5), ("crash", 0.5)])
    assert next(iter(examined(tree))).criticality == 0.5
    alone = one_decision([("a", 0.5), ("crash", 0.5)])
    assert [action.position for action in examined(alone)] == [2]


def test_shares_means_and_groups() -> None:
    found = measure([one_decision([("a", 1.0), ("b", 3.0)]), one_decision([("a", 0.0), ("a", 0.5)])])
    assert (found.actions, found.criticality, found.idle, found.critical) == (4, 0.125, 0.75, 0.25)
    assert (found.entropy_critical, found.entropy_idle) == (2.0, pytest.approx((0.5 + 0.5 + 0.25) / 3))
    assert [msgspec.structs.astuple(kind) for kind in found.kinds] == [("a", 2, 0.25, 0.5), ("win", 2, 0.0, 0.0)]
    assert [(place.name, place.actions) for place in found.positions] == [("1", 2), ("2", 2)]


@pytest.mark.parametrize(
    ("surprise", "told"),
    [(9.0, 1.0), (0.0, 0.0), (0.5, 0.5)],
    ids=["more before the critical one", "less", "the same"],
)
def test_whether_entropy_tells(surprise: float, told: float) -> None:
    """Beside the critical action there is one that decides nothing, before which entropy is 0.5."""
    found = measure([one_decision([("a", surprise), ("b", surprise)])])
    assert found.told == told


def test_without_a_critical_action_nothing_can_be_told() -> None:
    found = measure([one_decision([("a", 0.5), ("a", 0.5)])])
    assert (found.told, found.entropy_critical, found.idle) == (None, None, 1.0)


def test_without_log_probabilities_only_entropy_is_unknown() -> None:
    tree = one_decision([("a", 1.0), ("b", 3.0)])
    for step in tree.steps:
        step.logprobs = ()
    found = measure([tree])
    assert (found.actions, found.criticality, found.critical) == (2, 0.25, 0.5)
    assert (found.told, found.entropy_critical, found.entropy_idle) == (None, None, None)


def test_trees_of_another_method_are_refused() -> None:
    with pytest.raises(ValueError, match="--method criticality"):
        measure([chains([walk("ab", FAILURE)])])


def test_without_two_ends_there_is_nothing_to_measure() -> None:
    tree = one_decision([("crash", 0.5), ("crash", 0.5)])
    for step in tree.steps:
        if step.outcome is not None:
            step.outcome = Outcome.ERRORED
            step.error = "the engine died"
    with pytest.raises(ValueError, match="no action"):
        measure([tree])
