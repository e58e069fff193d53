"""Intervals and paired tests: plain numbers in, plain numbers out.

Every random draw has a fixed seed. Written out rather than taken from scipy, whose
exact tests leave out ties and whose bootstrap knows no clusters.
"""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

UPPER_TAIL = 0.975
"""The quantile that a two-sided interval of 95 % ends at."""
RESAMPLES = 10_000
SEED = 0
TIE = 1e-9
"""Means of tasks that differ by less are equal: thirds and sevenths differ in their
last bit.
"""
Interval = tuple[float, float]
"""Low and high end, at 95 %."""
Values = NDArray[np.float64]


def wilson(successes: int, total: int) -> Interval:
    """Wilson's score interval of a proportion (Wilson 1927); (0, 1) of nothing."""
    if total == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(UPPER_TAIL)
    z_squared = z * z
    rate = successes / total
    shrinkage = 1 + z_squared / total
    centre = (rate + z_squared / (2 * total)) / shrinkage
    binomial_variance = rate * (1 - rate) / total
    correction = z_squared / (4 * total * total)
    half = z / shrinkage * math.sqrt(binomial_variance + correction)
    low = max(0.0, centre - half)
    high = min(1.0, centre + half)
    return low, high


def clustered_bootstrap(groups: Sequence[Sequence[float]]) -> Interval:
    """Percentile interval of the overall mean when whole groups are drawn again.

    groups: one sequence of values in [0, 1] per task, its samples; empty ones are left
    out. (0, 1) when nothing was observed.
    """
    observed = [group for group in groups if len(group)]
    if not observed:
        return 0.0, 1.0
    count = len(observed)
    tasks = _Tasks(observed)
    if np.ptp(tasks.means) < TIE:
        return _unseen_interval(tasks.overall_mean, 0.0, count)
    draws = _draws(count)
    return _percentiles(tasks.resampled_means(draws))


def pass_at_k(
    n: int,
    c: int,
    k: int,
) -> float:
    """Unbiased probability that one of k draws from n samples, c correct, is correct.

    1 - C(n-c, k) / C(n, k) (Chen et al. 2021; 000 appendix C.2). Raises ValueError
    unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(
            f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}"
        )
    all_wrong = math.comb(n - c, k)
    return 1.0 - all_wrong / math.comb(n, k)


def mcnemar_exact(before: Sequence[bool], after: Sequence[bool]) -> float:
    """Two-sided exact McNemar test: p-value of the discordant pairs under a fair coin.

    Raises ValueError on unlike lengths.
    """
    if len(before) != len(after):
        raise ValueError(f"paired test of {len(before)} and {len(after)} results")
    pairs = Counter(zip(map(bool, before), map(bool, after), strict=True))
    gained = pairs[False, True]
    lost = pairs[True, False]
    discordant = gained + lost
    patterns = 0
    for number in range(min(gained, lost) + 1):
        patterns += math.comb(discordant, number)
    tail: float = patterns / 2**discordant
    return min(1.0, 2 * tail)


def paired_bootstrap(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]
) -> tuple[float, float, float]:
    """(difference, low, high) of the overall means, second minus first.

    Whole tasks are drawn again, each with the values that both have there. first,
    second: one sequence of values in [0, 1] per task, none empty, tasks in the same
    order. (0, -1, 1) without tasks. Raises ValueError on unlike lengths and on a task
    without values.
    """
    if len(first) != len(second) or not all(map(len, [*first, *second])):
        raise ValueError(
            f"paired difference of {len(first)} and {len(second)} tasks; each needs "
            "values on both sides"
        )
    if not first:
        return 0.0, -1.0, 1.0
    before = _Tasks(first)
    after = _Tasks(second)
    gain = after.overall_mean - before.overall_mean
    if np.ptp(after.means - before.means) < TIE:
        return gain, *_unseen_interval(gain, -1.0, len(first))
    draws = _draws(len(first))
    gains = after.resampled_means(draws) - before.resampled_means(draws)
    return gain, *_percentiles(gains)


def wilcoxon_exact(differences: Sequence[float]) -> float:
    """Two-sided exact Wilcoxon signed-rank test (000 appendix C.6).

    The p-value of the rank sum under random signs. Differences of 0 are left out
    (Wilcoxon 1945), ties share their mean rank; differences that are equal to 9
    decimals count as ties. 1.0 without any. Time and memory grow with the cube and the
    square of their number.
    """
    rounded = [round(difference, 9) for difference in differences]
    nonzero = [value for value in rounded if value != 0]
    sizes = sorted(map(abs, nonzero))
    ranks = {}
    for size in set(sizes):
        # Twice the mean rank of a tie is a whole number: first plus last rank.
        first = sizes.index(size) + 1
        ranks[size] = 2 * first + sizes.count(size) - 1
    # ways[w]: sign patterns with a (doubled) sum of positive ranks of w.
    ways = [1]
    for size in sizes:
        padding = [0] * ranks[size]
        negative = ways + padding
        positive = padding + ways
        ways = [a + b for a, b in zip(negative, positive, strict=True)]
    positive_sum = sum(ranks[value] for value in nonzero if value > 0)
    negative_sum = len(ways) - 1 - positive_sum
    smaller = min(positive_sum, negative_sum)
    patterns = sum(ways[: smaller + 1])
    tail: float = patterns / 2 ** len(sizes)
    return min(1.0, 2 * tail)


def least_signed_rank_p(pairs: int) -> float:
    """The smallest p that `wilcoxon_exact` can give for so many differences.

    All are of one sign then. Five give 1/16, never 0.05.
    """
    both_signs: float = 2 / 2**pairs
    return min(1.0, both_signs)


def paired_t(differences: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) of paired differences, by Student's t with n - 1 degrees.

    Raises ValueError without any.
    """
    if not differences:
        raise ValueError("paired differences: there are none")
    count = len(differences)
    centre = fmean(differences)
    if count == 1:
        # One difference says nothing about others.
        return centre, -math.inf, math.inf
    from scipy import stats

    squares = math.fsum((value - centre) ** 2 for value in differences)
    variance = squares / (count - 1)
    quantile = float(stats.t.ppf(UPPER_TAIL, count - 1))
    half = quantile * math.sqrt(variance / count)
    return centre, centre - half, centre + half


def area_under(rates: Sequence[float]) -> float:
    """Area under a curve over iterations, divided by their number: the mean rate.

    Raises ValueError without any.
    """
    if not rates:
        raise ValueError("area under a curve: it has no values")
    return fmean(rates)


def steps_to_level(
    rates: Sequence[float],
    steps: Sequence[int],
    level: float,
    window: int = 5,
) -> int | None:
    """Steps paid until `window` consecutive iterations have a mean rate of `level`.

    rates, steps: one for each iteration. None: never. The window is never shortened:
    single iterations scatter too much to count. Raises ValueError on unlike lengths.
    """
    if len(rates) != len(steps):
        raise ValueError(
            f"steps to a level: {len(rates)} rates and {len(steps)} numbers of steps"
        )
    for end in range(window, len(rates) + 1):
        rate = fmean(rates[end - window : end])
        if rate >= level - TIE:
            return sum(steps[:end])
    return None


class _Tasks:
    """The values of some tasks, as their sums and numbers."""

    def __init__(self, groups: Sequence[Sequence[float]]) -> None:
        self._sums = np.array(list(map(sum, groups)), dtype=np.float64)
        self._sizes = np.array(list(map(len, groups)), dtype=np.float64)

    @property
    def means(self) -> Values:
        """The mean of every task."""
        return self._sums / self._sizes

    @property
    def overall_mean(self) -> float:
        """The mean over all values."""
        mean = self._sums.sum() / self._sizes.sum()
        return float(mean)

    def resampled_means(self, draws: NDArray[np.int64]) -> Values:
        """The overall mean of every resample."""
        sums: Values = self._sums[draws].sum(axis=1)
        sizes: Values = self._sizes[draws].sum(axis=1)
        return sums / sizes


def _draws(groups: int) -> NDArray[np.int64]:
    """Groups drawn again with replacement: a row for each resample."""
    generator = np.random.default_rng(SEED)
    return generator.integers(0, groups, size=(RESAMPLES, groups))


def _percentiles(values: Values) -> Interval:
    low, high = np.quantile(values, [1 - UPPER_TAIL, UPPER_TAIL])
    return float(low), float(high)


def _unseen_interval(
    value: float,
    least: float,
    tasks: int,
) -> Interval:
    """The interval where all tasks have one `value`, in [least, 1].

    Drawing them again cannot vary. At most Wilson's share of unseen tasks may differ
    from it, and all the way; for rates of 0 and 1 that is Wilson's interval with one
    observation per task.
    """
    _, unseen = wilson(0, tasks)
    low = value - unseen * (value - least)
    high = value + unseen * (1 - value)
    return low, high
