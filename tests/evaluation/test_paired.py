"""Paired tests against the paper's own figure, scipy, and sign patterns counted one by one."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from agentcli.evaluation.statistics import paired_bootstrap, wilcoxon_exact, wilson
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

SPARK = (91.7, 100.0, 89.5, 96.9, 93.8, 80.5, 69.5, 68.0, 49.2, 88.8, 75.8)
GRPO = (55.6, 88.1, 72.1, 76.6, 71.1, 29.7, 21.1, 13.7, 10.9, 75.8, 56.8)
"""SPARK Table 1, Qwen2.5-1.5B: ALFWorld Look, Clean, Pick2, L0, L1, L2, ScienceWorld L0, L1, L2, WebShop score, success."""

values = st.lists(st.integers(-6, 6).map(lambda number: number / 10), max_size=9)


def test_the_paper_s_own_test() -> None:
    """SPARK appendix C.6 says 9.7e-4: eleven gains, no loss, so 2 / 2^11 = 9.77e-4."""
    p = wilcoxon_exact([spark - grpo for spark, grpo in zip(SPARK, GRPO, strict=True)])
    assert p == 2 / 2**11
    assert math.floor(p * 1e5) == 97


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=25, unique=True), st.data())
def test_without_ties_it_is_scipy_s(sizes: list[int], data: st.DataObject) -> None:
    signed = [size * data.draw(st.sampled_from((-1, 1))) for size in sizes]
    assert wilcoxon_exact(signed) == pytest.approx(stats.wilcoxon(signed, method="exact").pvalue, rel=1e-9)


@given(values)
def test_with_ties_and_zeros_it_counts_sign_patterns(differences: list[float]) -> None:
    signed = [value for value in differences if value]
    ranks = stats.rankdata([abs(value) for value in signed]) if signed else []
    total = sum(ranks)
    seen = min(w := sum(rank for rank, value in zip(ranks, signed, strict=True) if value > 0), total - w)
    patterns = list(itertools.product((0, 1), repeat=len(signed)))
    sums = [sum(rank for rank, sign in zip(ranks, pattern, strict=True) if sign) for pattern in patterns]
    expected = min(1.0, 2 * sum(own <= seen for own in sums) / len(patterns))
    assert wilcoxon_exact(differences) == pytest.approx(expected)


def test_many_tasks_are_drawn_in_parts_that_give_the_same_figures() -> None:
    """As of one draw of 10,000 times 500, which takes 120 MB."""
    first = [[float((7 * task + sample) % 5 < 2) for sample in range(1 + task % 3)] for task in range(500)]
    second = [[float((11 * task + sample) % 7 < 3) for sample in range(1 + task % 2)] for task in range(500)]
    tracemalloc.start()
    assert paired_bootstrap(first, second) == (0.030266266266266217, -0.01958216155780229, 0.07945970549584189)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


def test_rounding_errors_make_no_ranks() -> None:
    """0.3 - 0.2 and 0.2 - 0.1 differ in the last bit and are one rank."""
    assert wilcoxon_exact([0.3 - 0.2, 0.2 - 0.1, -0.1]) == wilcoxon_exact([1, 1, -1])


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=40))
def test_the_difference_and_its_mirror_image(pairs: list[tuple[bool, bool]]) -> None:
    first, second = ([[float(pair[side])] for pair in pairs] for side in (0, 1))
    gain, low, high = paired_bootstrap(first, second)
    assert gain == pytest.approx(sum(b - a for a, b in pairs) / len(pairs))
    assert -1 <= low <= gain + 1e-9
    assert gain - 1e-9 <= high <= 1
    assert low < high
    assert paired_bootstrap(second, first) == pytest.approx((-gain, -high, -low))


def test_pairing_is_what_makes_it_narrow() -> None:
    """Tasks differ much, runs little: 100 tasks, half of them always solved, 5 gained."""
    first = [[1.0]] * 50 + [[0.0]] * 50
    second = [[1.0]] * 50 + [[1.0]] * 5 + [[0.0]] * 45
    gain, low, high = paired_bootstrap(first, second)
    assert (gain, low, high) == pytest.approx((0.05, 0.05 - 1.96 * 0.0218, 0.05 + 1.96 * 0.0218), abs=0.008)
    assert low > 0


def test_copies_of_a_task_s_samples_carry_nothing() -> None:
    first = [[float(task % 3 == 0)] for task in range(30)]
    second = [[float(task % 2 == 0)] for task in range(30)]
    copied = [[value * 5 for value in side] for side in (first, second)]
    assert paired_bootstrap(*copied) == pytest.approx(paired_bootstrap(first, second))


def test_unlike_numbers_of_samples_are_scipys() -> None:
    """Three samples a task beside one: drawn by task, each side's mean over its own samples."""
    rng = np.random.default_rng(5)
    first, second = (rng.integers(0, 2, (25, samples)).astype(float) for samples in (1, 3))
    expected = stats.bootstrap(
        (first.mean(axis=1), second.mean(axis=1)),
        lambda before, after, axis: after.mean(axis=axis) - before.mean(axis=axis),
        paired=True,
        method="percentile",
        n_resamples=10_000,
        rng=3,
    ).confidence_interval
    assert paired_bootstrap(first.tolist(), second.tolist())[1:] == pytest.approx(expected, abs=0.02)


def test_what_cannot_vary_is_not_certain() -> None:
    unseen = wilson(0, 20)[1]
    assert paired_bootstrap([[1.0]] * 20, [[1.0]] * 20) == (0.0, -unseen, unseen)
    assert paired_bootstrap([[0.0]] * 20, [[1.0]] * 20) == (1.0, 1 - 2 * unseen, 1.0)
    assert paired_bootstrap([], []) == (0.0, -1.0, 1.0)


def test_thirds_that_differ_in_their_last_bit_are_equal() -> None:
    """Each task gains one of three samples, some from 0 to 1/3 and some from 2/3 to 1."""
    assert 1 - 2 / 3 != 1 / 3
    first, second = [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]] * 5, [[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]] * 5
    gain, low, high = paired_bootstrap(first, second)
    unseen = wilson(0, 10)[1]
    assert (gain, low, high) == pytest.approx((1 / 3, 1 / 3 - unseen * 4 / 3, 1 / 3 + unseen * 2 / 3))
