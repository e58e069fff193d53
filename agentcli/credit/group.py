"""How the scores of a group are compared: over the leaves of a tree, or by any key.

The group of a tree is its leaves, as a GRPO group; errored ones are left out of every
statistic. Everything is float64.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentcli.credit.once import once
from agentcli.credit.survey import ROOT, Survey
from agentcli.credit.switches import Normalise, RowSwitches, Switches

EPSILON = 1e-6
"""Added to every standard deviation before dividing by it."""
SMALLEST_STD = 1e-4
"""A group that spreads less gets advantage 0: what is left of it is float noise."""
Entry = tuple[int, float, float]
"""One member of a group: id of its step or leaf, score, weight."""


@dataclass(slots=True)
class Scale:
    """How a score of a group becomes an advantage: (score - center) * factor."""

    center: float
    factor: float
    weight: float = 1.0
    """Of the whole group."""

    def __call__(self, score: float) -> float:
        # Adding 0.0 turns -0.0 into 0.0.
        return (score - self.center) * self.factor + 0.0


def scale_of(
    entries: Iterable[Entry],
    normalise: str,
    smallest_std: float = SMALLEST_STD,
) -> Scale:
    """The normalisation of a group's scores, with W the sum of the weights.

        mean = sum(w x) / W        std = sqrt(sum(w (x - mean)^2) / (W - 1))

    Integer weights are repetitions and give the usual ddof-1 estimate. A group of
    weight 1 or less, or with a std below `smallest_std`, gets factor 0.
    """
    group = [(score, weight) for _, score, weight in entries if weight > 0]
    if not group:
        return Scale(0.0, 0.0, 0.0)
    if len(group) == 1 and group[0][1] == 1:
        # Most states of a tree are left once: no sums are needed for them.
        return Scale(group[0][0], 0.0)
    total = math.fsum([weight for _, weight in group])
    mean = math.fsum([weight * score for score, weight in group]) / total
    if total <= 1 + 1e-9:
        return Scale(mean, 0.0, total)
    squares = math.fsum([weight * (score - mean) ** 2 for score, weight in group])
    std = math.sqrt(squares / (total - 1))
    if std < smallest_std:
        return Scale(mean, 0.0, total)
    factor = 1.0 / (std + EPSILON) if normalise == "std" else 1.0
    return Scale(mean, factor, total)


def division(scale: str | None) -> Normalise:
    """How scores are compared where a method's `scale` is std or none."""
    return "std" if scale == "std" else "mean"


class Grouping:
    """Entries, one a row, that are compared with those of an equal key."""

    def __init__(
        self,
        keys: Sequence[Hashable],
        entries: Sequence[Entry],
        normalise: str,
        smallest_std: float = SMALLEST_STD,
    ) -> None:
        self.entries = entries
        self.normalise = normalise
        self._keys = keys
        self._members: dict[Hashable, list[Entry]] = {}
        for key, entry in zip(keys, entries, strict=True):
            self._members.setdefault(key, []).append(entry)
        self.scales: dict[Hashable, Scale] = {}
        for key, group in self._members.items():
            self.scales[key] = scale_of(group, normalise, smallest_std)

    def among(self, place: int) -> tuple[list[Entry], int, Scale]:
        """The group of the entry at `place`, its position there, and the group's scale.

        Members of weight 0 are left out.
        """
        key = self._keys[place]
        group = self._members[key]
        index = list(self._keys[:place]).count(key)
        position = sum(weight > 0 for _, _, weight in group[:index])
        members = [entry for entry in group if entry[2] > 0]
        return members, position, self.scales[key]


@once
def step_grouping(
    keys: Sequence[Hashable],
    scores: Sequence[float],
    survey: Survey,
    prefix: str | None,
    normalise: str,
) -> Grouping:
    """The steps of equal keys, compared by their scores less penalties.

    A merged step counts once in its group, a duplicated one once per leaf.
    """
    entries = []
    for step, score in enumerate(scores):
        weight = float(survey.live[step]) if prefix == "duplicate" else 1.0
        if survey.masked[step] is not None:
            weight = 0.0
        entries.append((step, score - survey.penalties[step], weight))
    return Grouping(keys, entries, normalise)


class GroupForm(NamedTuple):
    """Which rows are the group of a tree (RowSwitches)."""

    form: str = "paper"
    over: str | None = "trajectories"
    prefix: str | None = "merge"


@once
def form_of(switches: Switches) -> GroupForm:
    """The form that the switches ask for; the paper's where a method has only one."""
    if isinstance(switches, RowSwitches):
        return GroupForm(switches.form, switches.over, switches.prefix)
    return GroupForm()


@once
def outcome_scale(
    survey: Survey,
    switches: Switches,
    normalise: str,
) -> Scale:
    """Mean and std of the group of leaves, with the penalty inside the baseline.

    With R_i the outcome reward and T_i the steps of trajectory i, G trajectories and
    penalty p, the row of step t of trajectory i scores x_it = R_i -
    p [step t invalid] and weighs w_i:

        over = trajectories:  w_i = 1 / T_i    (W = G: every trajectory counts once)
        over = steps:         w_i = 1          (W = sum T_i); with prefix = merge a
                                               shared step is one row

        mean = sum w_i x_it / W      std^2 = sum w_i (x_it - mean)^2 / (W - 1)
        A_it = (x_it - mean) / (std + 1e-6)

    So the weighted sum of all A_it is 0 even without a success. Without
    invalid steps over = trajectories is GRPO (002 eq. 8) to the letter. A merged step
    has the mean of its leaves' A_it. One trajectory alone: 0. With `penalty: outside` p
    is 0 here, and Survey.credit takes it from the advantage.
    """
    form = form_of(switches)
    if form.form == "release":
        from agentcli.credit.release.group import outcome_scale as release_scale

        return release_scale(survey, form, normalise)
    if survey.live[ROOT] <= 1:
        return Scale(0.0, 0.0)
    return scale_of(outcome_entries(survey, form), normalise)


@once
def outcome_entries(survey: Survey, form: GroupForm) -> list[Entry]:
    """The group of `outcome_scale`, in the paper's form.

    One entry per leaf for its valid rows and one for its invalid ones, or one per step.
    """
    rewards = survey.rewards
    penalties = survey.penalties
    entries = []
    if form.over == "steps" and form.prefix == "merge":
        for step, penalty in enumerate(penalties):
            if survey.live[step] and survey.asked[step]:
                entries.append((step, rewards[step] - penalty, 1.0))
        return entries
    counts = path_counts(survey)
    penalty = max(penalties, default=0.0)
    for end in survey.live_ends():
        length = counts.length[end]
        wrong = counts.invalid[end]
        if form.over == "trajectories":
            # A trajectory counts once, even one that was never asked.
            length = length or 1
            unit = 1.0 / length
        else:
            unit = 1.0
        entries.append((end, rewards[end], unit * (length - wrong)))
        if wrong:
            entries.append((end, rewards[end] - penalty, unit * wrong))
    return entries


def mean_penalty(survey: Survey) -> float:
    """Mean over the live trajectories of the mean penalty of their steps; 0 without."""
    penalty = max(survey.penalties, default=0.0)
    trajectories = survey.live[ROOT]
    if not penalty or not trajectories:
        return 0.0
    counts = path_counts(survey)
    shares = []
    for end in survey.live_ends():
        shares.append(counts.invalid[end] / (counts.length[end] or 1))
    return penalty * math.fsum(shares) / trajectories


class PathCounts(NamedTuple):
    """Figures of the path to every step, by step id."""

    first: list[int]
    """Its first step."""
    length: list[int]
    """Its number of steps, without one that was never asked."""
    invalid: list[int]
    """Its number of invalid steps."""


@once
def path_counts(survey: Survey) -> PathCounts:
    """The figures of all paths, in one pass."""
    size = len(survey.parents)
    counts = PathCounts(
        list(range(size)),
        list(survey.asked),
        list(map(int, survey.invalid)),
    )
    first, length, invalid = counts
    for step, parent in enumerate(survey.parents):
        if parent != ROOT:
            first[step] = first[parent]
            length[step] += length[parent]
            invalid[step] += invalid[parent]
    return counts
