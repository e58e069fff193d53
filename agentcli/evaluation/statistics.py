"""Intervals and paired tests. Plain numbers in, plain numbers out; every random draw
has a fixed seed.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
TIE = 1e-9
"""Means of tasks that differ by less are equal: thirds and sevenths differ in their
last bit.
"""
Values = NDArray[np.float64]


def wilson(successes: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a proportion (Wilson 1927); (0, 1) when nothing was
    observed.
    """
    if total == 0:
        return 0.0, 1.0
    z = _normal_quantile(0.5 + confidence / 2)
    rate = successes / total
    shrinkage = 1 + z * z / total
    centre = (rate + z * z / (2 * total)) / shrinkage
    half = (
        z
        / shrinkage
        * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    )
    return max(0.0, centre - half), min(1.0, centre + half)


def clustered_bootstrap(
    groups: Sequence[Sequence[float]], confidence: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of the overall mean when whole groups (the samples of one
    task) are drawn again.

    groups: one sequence of values in [0, 1] per task; empty ones are left out. (0, 1)
    when nothing was observed. When every task has the same mean, drawing again cannot
    vary: at most Wilson's share of unseen tasks may differ from it then, and all the
    way (for 0 and 1 that is Wilson's interval with one observation per task).
    """
    observed = [group for group in groups if len(group)]
    if not observed:
        return 0.0, 1.0
    sums, sizes = _sums_and_sizes(observed)
    if np.ptp(sums / sizes) < TIE:
        mean = float(sums.sum() / sizes.sum())
        unseen = wilson(0, len(observed), confidence)[1]
        return mean - unseen * mean, mean + unseen * (1 - mean)
    draws = _draws(len(observed), seed)
    return _percentiles(_means(sums, sizes, draws), confidence)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased probability that one of k draws from n samples, c of them correct, is
    correct.

    1 - C(n-c, k) / C(n, k) (Chen et al. 2021; 000 appendix C.2). Raises ValueError
    unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(
            f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}"
        )
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def mcnemar_exact(before: Sequence[bool], after: Sequence[bool]) -> float:
    """Two-sided exact McNemar test: p-value of the discordant pairs under a fair coin.

    Raises ValueError on unlike lengths.
    """
    if len(before) != len(after):
        raise ValueError(f"paired test of {len(before)} and {len(after)} results")
    gained = sum(b and not a for a, b in zip(before, after, strict=True))
    lost = sum(a and not b for a, b in zip(before, after, strict=True))
    discordant = gained + lost
    patterns = sum(
        math.comb(discordant, number) for number in range(min(gained, lost) + 1)
    )
    tail: float = patterns / 2**discordant
    return min(1.0, 2 * tail)


def paired_bootstrap(
    first: Sequence[Sequence[float]],
    second: Sequence[Sequence[float]],
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float, float]:
    """(difference, low, high) of the overall means, second minus first, when whole
    tasks are drawn again.

    A task is drawn with the values that both have there.

    first, second: one sequence of values in [0, 1] per task, none empty, tasks in the
    same order. (0, -1, 1) without tasks. When every task has the same difference,
    drawing again cannot vary: at most Wilson's share of unseen tasks may differ from it
    then, and all the way. Raises ValueError on unlike lengths and on a task without
    values.
    """
    if len(first) != len(second) or not all(map(len, [*first, *second])):
        raise ValueError(
            f"paired difference of {len(first)} and {len(second)} tasks; each needs "
            "values on both sides"
        )
    if not first:
        return 0.0, -1.0, 1.0
    sums_first, sizes_first = _sums_and_sizes(first)
    sums_second, sizes_second = _sums_and_sizes(second)
    gain = float(
        sums_second.sum() / sizes_second.sum() - sums_first.sum() / sizes_first.sum()
    )
    gains_by_task = sums_second / sizes_second - sums_first / sizes_first
    if np.ptp(gains_by_task) < TIE:
        unseen = wilson(0, len(first), confidence)[1]
        return gain, gain - unseen * (1 + gain), gain + unseen * (1 - gain)
    draws = _draws(len(first), seed)
    gains = _means(sums_second, sizes_second, draws) - _means(
        sums_first, sizes_first, draws
    )
    return gain, *_percentiles(gains, confidence)


def wilcoxon_exact(differences: Sequence[float]) -> float:
    """Two-sided exact Wilcoxon signed-rank test (000 appendix C.6): p-value of the rank
    sum under random signs.

    Differences of 0 are left out (Wilcoxon 1945), ties share their mean rank;
    differences that are equal to 9 decimals count as ties. 1.0 without any. Time and
    memory grow with the cube and the square of their number.
    """
    sizes = sorted(
        abs(round(value, 9)) for value in differences if round(value, 9) != 0
    )
    # Twice the mean rank of a tie is a whole number: first plus last rank.
    ranks = {size: 2 * sizes.index(size) + sizes.count(size) + 1 for size in set(sizes)}
    ways = [1]  # ways[w]: sign patterns with a (doubled) sum of positive ranks of w
    for size in sizes:
        shifted = [0] * ranks[size] + ways
        ways = [a + b for a, b in zip(ways + [0] * ranks[size], shifted, strict=True)]
    positive = sum(
        ranks[round(value, 9)] for value in differences if round(value, 9) > 0
    )
    smaller = min(positive, len(ways) - 1 - positive)
    tail: float = sum(ways[: smaller + 1]) / 2 ** len(sizes)
    return min(1.0, 2 * tail)


def least_signed_rank_p(pairs: int) -> float:
    """The smallest p that `wilcoxon_exact` can give for so many differences: all of one
    sign. Five give 1/16, never 0.05.
    """
    both_signs: float = 2 / 2**pairs
    return min(1.0, both_signs)


def paired_t(
    differences: Sequence[float], confidence: float = 0.95
) -> tuple[float, float, float]:
    """(mean, low, high) of paired differences, by Student's t with n - 1 degrees of
    freedom.

    One difference says nothing about others: its interval is infinite. Raises
    ValueError without any.
    """
    if not differences:
        raise ValueError("paired differences: there are none")
    count = len(differences)
    centre = math.fsum(differences) / count
    if count == 1:
        return centre, -math.inf, math.inf
    from scipy import stats

    variance = math.fsum((value - centre) ** 2 for value in differences) / (count - 1)
    half = float(stats.t.ppf(0.5 + confidence / 2, count - 1)) * math.sqrt(
        variance / count
    )
    return centre, centre - half, centre + half


def area_under(rates: Sequence[float]) -> float:
    """Area under a curve over iterations, divided by their number: the mean rate.
    Raises ValueError without any.
    """
    if not rates:
        raise ValueError("area under a curve: it has no values")
    return math.fsum(rates) / len(rates)


def steps_to_level(
    rates: Sequence[float], steps: Sequence[int], level: float, window: int = 5
) -> int | None:
    """Steps paid up to the end of the first `window` consecutive iterations whose mean
    rate is at least `level`; None: never.

    rates, steps: one for each iteration. The window is never shortened: single
    iterations scatter too much to count. Raises ValueError on unlike lengths.
    """
    if len(rates) != len(steps):
        raise ValueError(
            f"steps to a level: {len(rates)} rates and {len(steps)} numbers of steps"
        )
    for end in range(window, len(rates) + 1):
        if math.fsum(rates[end - window : end]) / window >= level - TIE:
            return sum(steps[:end])
    return None


def _sums_and_sizes(groups: Sequence[Sequence[float]]) -> tuple[Values, Values]:
    sums = np.array([sum(group) for group in groups], dtype=np.float64)
    sizes = np.array([len(group) for group in groups], dtype=np.float64)
    return sums, sizes


def _draws(groups: int, seed: int) -> NDArray[np.int64]:
    """Groups drawn again with replacement: a row for each resample."""
    return np.random.default_rng(seed).integers(0, groups, size=(RESAMPLES, groups))


def _means(sums: Values, sizes: Values, draws: NDArray[np.int64]) -> Values:
    """The overall mean of every resample."""
    means: Values = sums[draws].sum(axis=1) / sizes[draws].sum(axis=1)
    return means


def _percentiles(values: Values, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(values, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return float(low), float(high)


def _normal_quantile(probability: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(probability)
