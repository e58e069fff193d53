"""What is said over the seeds of an experiment: paired t, areas, and when a level is met."""

import math
from collections.abc import Sequence
from statistics import fmean

from scipy import stats

ROUNDING = 1e-9
"""A mean rate that is lower by less is at the level."""


def paired_t(differences: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) of paired differences, by Student's t with n - 1 degrees.

    Raises ValueError without any.
    """
    centre = fmean(differences)
    if len(differences) == 1:
        # One difference says nothing about others.
        return centre, -math.inf, math.inf
    # Without any spread the t statistic is a division by 0, and scipy gives NaN.
    if min(differences) == max(differences):
        return centre, centre, centre
    interval = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    return centre, float(interval.low), float(interval.high)


def area_under(rates: Sequence[float]) -> float:
    """Area under a curve over iterations, divided by their number: the mean rate.

    Raises ValueError without any.
    """
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
        if rate >= level - ROUNDING:
            return sum(steps[:end])
    return None
