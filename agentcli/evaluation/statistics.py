"""Intervals, paired tests, areas and levels: plain numbers in, plain numbers out.

scipy could do most of this, but loading it takes 75 MB and a second, longer than all
the rest of `compare`. The tests compare these few lines with scipy's results. Student's
t, which studies alone need, is scipy's. Its exact signed-rank test does not handle
ties. Every random draw has a fixed seed.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from operator import add
from statistics import NormalDist, fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

UPPER_TAIL = 0.975
"""The quantile that a two-sided interval of 95 % ends at."""
Z = NormalDist().inv_cdf(UPPER_TAIL)
Z_SQUARED = Z * Z
RESAMPLES = 10_000
DRAWN = 1_000_000
"""Tasks that are drawn at a time."""
SEED = 0
ROUNDING = 1e-9
"""A mean rate that is lower by less is at the level."""
TIE = 1e-9
"""Task means that differ by less count as equal, since rounding makes the last bits of
thirds and sevenths differ.
"""
Interval = tuple[float, float]
"""Low and high end, at 95 %."""
WithInterval = tuple[float, float, float]
"""A value, and the low and high end of its interval."""
Values = NDArray[np.float64]
Groups = Sequence[Sequence[float]]
"""The values of each task."""


def wilson(successes: int, total: int) -> Interval:
    """Wilson's score interval of a proportion (Wilson 1927); (0, 1) of nothing."""
    if total == 0:
        return 0.0, 1.0
    rate = successes / total
    pull = Z_SQUARED / total
    shrinkage = 1 + pull
    centre = (rate + pull / 2) / shrinkage
    sampling = rate * (1 - rate) / total
    variance = sampling + Z_SQUARED / (4 * total * total)
    half = Z / shrinkage * math.sqrt(variance)
    # At rates of 0 and 1 rounding may carry an end past the limit.
    low = max(0.0, centre - half)
    high = min(1.0, centre + half)
    return low, high


def clustered_bootstrap(groups: Groups) -> Interval:
    """Percentile interval of the overall mean when whole groups are drawn again.

    groups: one sequence of values in [0, 1] per task, its samples; empty ones are left
    out. (0, 1) when nothing was observed.
    """
    observed = [group for group in groups if len(group)]
    if not observed:
        return 0.0, 1.0
    sums, sizes = _sums_and_sizes(observed)
    if np.ptp(sums / sizes) < TIE:
        rate = float(_mean(sums, sizes))
        return _unseen_interval(rate, 0.0, len(observed))
    means = _resampled_means(sums, sizes)
    return _percentiles(means)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased probability that one of k draws from n samples, c correct, is correct.

    1 - C(n-c, k) / C(n, k) (Chen et al. 2021; SPARK appendix C.2). Raises ValueError
    unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(
            f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}"
        )
    # Whole numbers: a product of many quotients would add up its rounding.
    all_wrong = math.comb(n - c, k)
    return 1.0 - all_wrong / math.comb(n, k)


def mcnemar_exact(before: Sequence[bool], after: Sequence[bool]) -> float:
    """Two-sided exact McNemar test: p-value of the discordant pairs under a fair coin.

    Raises ValueError on unlike lengths.
    """
    pairs = Counter(zip(before, after, strict=True))
    gained = pairs[False, True]
    lost = pairs[True, False]
    discordant = gained + lost
    # Integers up to the last division: 2**n soon exceeds what floats count.
    patterns = 0
    fewer = min(gained, lost)
    for count in range(fewer + 1):
        patterns += math.comb(discordant, count)
    return _two_sided(patterns, discordant)


def paired_bootstrap(first: Groups, second: Groups) -> WithInterval:
    """(difference, low, high) of the overall means, second minus first.

    Whole tasks are drawn again, each with the values that both have there. first,
    second: one sequence of values in [0, 1] per task, none empty, tasks in the same
    order. (0, -1, 1) without tasks.
    """
    if not first:
        return 0.0, -1.0, 1.0
    sums_before, sizes_before = _sums_and_sizes(first)
    sums_after, sizes_after = _sums_and_sizes(second)
    mean_before = _mean(sums_before, sizes_before)
    mean_after = _mean(sums_after, sizes_after)
    gain = float(mean_after - mean_before)
    rates_before = sums_before / sizes_before
    rates_after = sums_after / sizes_after
    if np.ptp(rates_after - rates_before) < TIE:
        return gain, *_unseen_interval(gain, -1.0, len(first))
    # By the fixed seed both draw the same tasks, so the resamples are paired.
    means_before = _resampled_means(sums_before, sizes_before)
    means_after = _resampled_means(sums_after, sizes_after)
    return gain, *_percentiles(means_after - means_before)


def wilcoxon_exact(differences: Sequence[float]) -> float:
    """Two-sided exact Wilcoxon signed-rank test (SPARK appendix C.6).

    The p-value of the rank sum under random signs. Differences of 0 are left out
    (Wilcoxon 1945), ties share their mean rank; differences that are equal to 9
    decimals count as ties. 1.0 without any. Time and memory grow with the cube and the
    square of their number.
    """
    rounded = [round(difference, 9) for difference in differences]
    nonzero = [value for value in rounded if value != 0]
    sizes = sorted(map(abs, nonzero))
    # Twice the mean rank of a tie is a whole number: its first plus its last rank.
    ranks = {}
    for size in sizes:
        first = bisect_left(sizes, size) + 1
        last = bisect_right(sizes, size)
        ranks[size] = first + last
    # ways[w]: sign patterns with a (doubled) sum of positive ranks of w.
    ways = [1]
    for size in sizes:
        padding = [0] * ranks[size]
        negative = ways + padding
        positive = padding + ways
        ways = list(map(add, negative, positive))
    rank_sum = sum(ranks[value] for value in nonzero if value > 0)
    at_most = sum(ways[: rank_sum + 1])
    at_least = sum(ways[rank_sum:])
    return _two_sided(min(at_most, at_least), len(sizes))


def _two_sided(patterns: int, coins: int) -> float:
    """The p-value where `patterns` of fair coins are as extreme, on one side."""
    tail: float = patterns / 2**coins
    # Where both sides are alike, the middle is counted twice.
    return min(1.0, 2 * tail)


def _sums_and_sizes(groups: Groups) -> tuple[Values, Values]:
    sums = np.fromiter(map(sum, groups), float)
    sizes = np.fromiter(map(len, groups), float)
    return sums, sizes


def _mean(sums: Values, sizes: Values) -> Any:
    """The mean over all values: one number, or one for each resample."""
    totals = sums.sum(axis=-1)
    counts = sizes.sum(axis=-1)
    return totals / counts


def _resampled_means(sums: Values, sizes: Values) -> Any:
    """The mean over all values of each resample, in which tasks are drawn again."""
    tasks = len(sums)
    generator = np.random.default_rng(SEED)
    rows = max(1, DRAWN // tasks)
    means = []
    for begin in range(0, RESAMPLES, rows):
        size = (min(rows, RESAMPLES - begin), tasks)
        draws = generator.integers(0, tasks, size=size)
        means.append(_mean(sums[draws], sizes[draws]))
    return np.concatenate(means)


def _percentiles(values: Values) -> Interval:
    tails = [1 - UPPER_TAIL, UPPER_TAIL]
    low, high = np.quantile(values, tails)
    return float(low), float(high)


def _unseen_interval(value: float, least: float, tasks: int) -> Interval:
    """The interval if all tasks have the same `value`, in [least, 1].

    Resampling then gives no variation. Instead, Wilson's interval limits the share of
    unseen tasks that may differ from `value`, by as much as possible. For rates of 0
    and 1 this is Wilson's interval with one observation per task.
    """
    _, unseen = wilson(0, tasks)
    low = value - unseen * (value - least)
    high = value + unseen * (1 - value)
    return low, high


def paired_t(differences: Sequence[float]) -> WithInterval:
    """(mean, low, high) of paired differences, by Student's t with n - 1 degrees.

    Raises ValueError without any.
    """
    centre = fmean(differences)
    if len(differences) == 1:
        # One difference says nothing about others.
        return centre, -math.inf, math.inf
    # Without any spread but rounding, t is a division by 0, and scipy gives NaN.
    spread = max(differences) - min(differences)
    if spread < TIE:
        return centre, centre, centre
    # Loaded where it is needed: only studies over seeds ask.
    from scipy import stats

    test = stats.ttest_1samp(differences, 0)
    interval = test.confidence_interval(0.95)
    return centre, float(interval.low), float(interval.high)


def steps_to_level(
    rates: Sequence[float], steps: Sequence[int], level: float, window: int
) -> int | None:
    """Steps paid until `window` consecutive iterations have a mean rate of `level`.

    rates, steps: one for each iteration. None: never. The window is never shortened:
    single iterations scatter too much to count.
    """
    for end in range(window, len(rates) + 1):
        rate = fmean(rates[end - window : end])
        if rate >= level - ROUNDING:
            return sum(steps[:end])
    return None
