"""Intervals and tests against closed forms worked by hand and against scipy."""

import itertools
import math

import numpy as np
import pytest
from agentcli.evaluation.statistics import clustered_bootstrap, mcnemar_exact, pass_at_k, wilson
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(counts: tuple[int, int]) -> None:
    expected = stats.binomtest(*counts).proportion_ci(method="wilson")
    assert wilson(*counts) == pytest.approx((expected.low, expected.high), abs=1e-9)


@pytest.mark.parametrize(("successes", "total"), [(3, 12), (0, 5), (5, 5), (70, 140)])
def test_wilson_inverts_the_score_test(successes: int, total: int) -> None:
    """Both ends are rates p at which the observed rate is z standard errors away: (p - rate)^2 = z^2 p (1 - p) / n."""
    for p in wilson(successes, total):
        assert (p - successes / total) ** 2 == pytest.approx(1.959964**2 * p * (1 - p) / total, abs=1e-7)


def test_nothing_observed_says_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert clustered_bootstrap([]) == (0.0, 1.0)


def test_bootstrap_draws_whole_tasks() -> None:
    """Ten copies of one task's answer carry no more information than one: the interval is that of the tasks."""
    copied = [[1.0] * 10 if task % 2 else [0.0] * 10 for task in range(20)]
    single = [[float(task % 2)] for task in range(20)]
    assert clustered_bootstrap(copied) == clustered_bootstrap(single)
    low, high = clustered_bootstrap(single)
    assert low == pytest.approx(0.5 - 1.96 * 0.5 / math.sqrt(20), abs=0.04)
    assert high == pytest.approx(0.5 + 1.96 * 0.5 / math.sqrt(20), abs=0.04)


def test_bootstrap_of_unlike_numbers_of_samples_is_scipys() -> None:
    """Whole tasks are drawn with all their samples, and the mean is over samples: scipy's ratio of paired sums."""
    rng = np.random.default_rng(2)
    groups = [rng.integers(0, 2, size).astype(float) for size in rng.integers(1, 9, 30)]
    sums, sizes = (np.array([function(group) for group in groups]) for function in (np.sum, np.size))
    expected = stats.bootstrap(
        (sums, sizes),
        lambda total, count, axis: total.sum(axis=axis) / count.sum(axis=axis),
        paired=True,
        method="percentile",
        n_resamples=10_000,
        rng=3,
    ).confidence_interval
    assert clustered_bootstrap([list(group) for group in groups]) == pytest.approx(expected, abs=0.01)


def test_certainty_is_not_bootstrapped() -> None:
    assert clustered_bootstrap([[0.0, 0.0]] * 20) == pytest.approx(wilson(0, 20), abs=1e-12)
    assert clustered_bootstrap([[1.0, 1.0]] * 20) == pytest.approx(wilson(20, 20), abs=1e-12)


def test_one_success_of_three_in_every_task_is_not_certain_either() -> None:
    """At most the share of unseen tasks differs, by going to 0 or to 1."""
    unseen = wilson(0, 12)[1]
    expected = ((1 - unseen) / 3, (1 - unseen) / 3 + unseen)
    assert clustered_bootstrap([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]] * 6) == pytest.approx(expected)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 2, 2), (5, 1, 3), (6, 0, 2), (6, 6, 1), (8, 7, 2), (32, 3, 16)])
def test_pass_at_k_is_the_share_of_draws_with_a_success(n: int, c: int, k: int) -> None:
    if n <= 8:
        draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
        expected = sum(any(draw) for draw in draws) / len(draws)
    else:
        expected = 1 - math.comb(29, 16) / math.comb(32, 16)
    assert pass_at_k(n, c, k) == pytest.approx(expected)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, 2, 5), (4, 2, 0), (4, -1, 2)])
def test_pass_at_k_refuses_what_cannot_be(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"n={n}, c={c}, k={k}"):
        pass_at_k(n, c, k)


def test_mcnemar_by_hand() -> None:
    """Five tasks gained, one lost: p = 2 * (C(6,0) + C(6,1)) / 2^6 = 14/64."""
    before = [False] * 5 + [True] + [True] * 10
    after = [True] * 5 + [False] + [True] * 10
    assert mcnemar_exact(before, after) == 14 / 64
    assert mcnemar_exact(after, before) == 14 / 64
    assert mcnemar_exact(before, before) == 1.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_mcnemar_is_a_binomial_test_of_the_discordant_pairs(pairs: list[tuple[bool, bool]]) -> None:
    gained = sum(after and not before for before, after in pairs)
    lost = sum(before and not after for before, after in pairs)
    expected = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert mcnemar_exact([b for b, _ in pairs], [a for _, a in pairs]) == pytest.approx(expected)


def test_unlike_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        mcnemar_exact([True, False], [True])
