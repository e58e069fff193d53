"""What is tested over seeds: paired t by its formula and by hand, curves and levels by hand."""

import math
from statistics import stdev

import pytest
from agentcli.analysis.study import WINDOW
from agentcli.evaluation.statistics import paired_t, steps_to_level
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=12))
def test_paired_t_is_its_formula(differences: list[float]) -> None:
    mean, low, high = paired_t(differences)
    half = stats.t.ppf(0.975, len(differences) - 1) * stdev(differences) / math.sqrt(len(differences))
    assert (low, high) == pytest.approx((mean - half, mean + half), rel=1e-6, abs=1e-8)


def test_paired_t_by_hand() -> None:
    """1, 2, 3: mean 2, deviation 1, t of two degrees of freedom 4.3027: 2 -+ 4.3027 / sqrt(3)."""
    half = 4.302653 / math.sqrt(3)
    assert paired_t([1, 2, 3]) == pytest.approx((2, 2 - half, 2 + half))


def test_one_seed_says_nothing_of_others() -> None:
    assert paired_t([3.0]) == (3.0, -math.inf, math.inf)
    with pytest.raises(ValueError):  # noqa: PT011 the standard library words it
        paired_t([])


def test_a_level_is_reached_at_the_end_of_its_window() -> None:
    """Means of two: .15, .25, .35; the third iteration ends after 60 steps."""
    rates, steps = [0.1, 0.2, 0.3, 0.4], [10, 20, 30, 40]
    assert steps_to_level(rates, steps, 0.25, window=2) == 60
    assert steps_to_level(rates, steps, 0.15, window=2) == 30
    assert steps_to_level(rates, steps, 0.36, window=2) is None


def test_one_lucky_iteration_is_no_level() -> None:
    assert steps_to_level([0.1, 0.9, 0.1, 0.1, 0.1], [10] * 5, 0.5, WINDOW) is None


def test_a_loop_shorter_than_the_window_reaches_nothing() -> None:
    assert steps_to_level([1.0] * 4, [10] * 4, 0.5, WINDOW) is None


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 100)), min_size=5, max_size=30), st.floats(0, 1), st.floats(0, 1)
)
def test_a_higher_level_is_never_reached_sooner(course: list[tuple[float, int]], first: float, second: float) -> None:
    rates, steps = zip(*course, strict=True)
    lower, higher = (steps_to_level(rates, steps, level, WINDOW) for level in sorted((first, second)))
    assert higher is None or (lower is not None and lower <= higher)
