"""Compares scores within a group: the leaves of a tree, or entries with an equal key.

As in GRPO, the group of a tree is its leaves. Errored leaves are left out of every
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
"""A group with a smaller std gets advantage 0: such a spread is float noise."""
Entry = tuple[int, float, float]
"""One member of a group: id of its step or leaf, score, weight."""


@dataclass(slots=True)
class Scale:
    """Turns a score of a group into an advantage: (score - center) * factor."""

    center: float
    factor: float
    weight: float = 1.0
    """Sum of the weights of the group."""

    def __call__(self, score: float) -> float:
        # Adding 0.0 turns -0.0 into 0.0.
        return (score - self.center) * self.factor + 0.0


def scale_of(
    entries: Iterable[Entry],
    normalise: str,
    smallest_std: float = SMALLEST_STD,
) -> Scale:
    """The normalisation of a group's scores, where W is the sum of the weights.

        mean = sum(w x) / W        std = sqrt(sum(w (x - mean)^2) / (W - 1))

    Integer weights act as repetitions and give the usual ddof-1 estimate. A group of
    weight 1 or less, or with a std below `smallest_std`, gets factor 0.
    """
    group = [(score, weight) for _, score, weight in entries if weight > 0]
    if not group:
        return Scale(0.0, 0.0, 0.0)
    if len(group) == 1 and group[0][1] == 1:
        # From most states of a tree only one step is taken: they need no sums.
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
    """The `normalise` value for a method's `scale`: std for std, mean for none."""
    return "std" if scale == "std" else "mean"


class Grouping:
    """Entries grouped by key; each is compared with the entries of the same key."""

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

    def compared(self, place: int) -> float:
        """The score of the entry at `place`, compared within its group."""
        _, score, _ = self.entries[place]
        return self.scales[self._keys[place]](score)

    def among(self, place: int) -> tuple[list[Entry], int, Scale]:
        """The group of the entry at `place`, the entry's position in it, and its scale.

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
    """The steps grouped by key, scored by their scores less penalties.

    A merged step counts once in its group, a duplicated one once per leaf.
    """
    entries = []
    for step, score in enumerate(scores):
        weight = float(survey.live[step]) if prefix == "duplicate" else 1.0
        if survey.masked[step] is not None or not survey.asked[step]:
            weight = 0.0
        entries.append((step, score - survey.penalties[step], weight))
    return Grouping(keys, entries, normalise)


class GroupForm(NamedTuple):
    """Which rows make up the group of a tree (see RowSwitches)."""

    form: str = "paper"
    over: str | None = "trajectories"
    prefix: str | None = "merge"


@once
def form_of(switches: Switches) -> GroupForm:
    """The form chosen by the switches; the paper's for methods with only one form."""
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

    There are G trajectories and a penalty p. R_i is the outcome reward of trajectory i
    and T_i its number of steps. The row of step t of trajectory i has the score x_it =
    R_i - p [step t invalid] and the weight w_i:

        over = trajectories:  w_i = 1 / T_i    (W = G: every trajectory counts once)
        over = steps:         w_i = 1          (W = sum T_i); with prefix = merge a
                                               shared step is one row

        mean = sum w_i x_it / W      std^2 = sum w_i (x_it - mean)^2 / (W - 1)
        A_it = (x_it - mean) / (std + 1e-6)

    So the weighted sum of all A_it is 0 even without a success. Without invalid steps,
    over = trajectories is exactly GRPO (RewardFlow eq. 8). A merged step gets the mean
    of its leaves' A_it. A single trajectory gets 0. With `penalty: outside`, p is 0
    here and Survey.credit subtracts the penalty from the advantage.
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
    """The entries of the group in `outcome_scale`, in the paper's form.

    Each leaf has one entry for its valid rows and one for its invalid rows. With over =
    steps and prefix = merge, each step has one entry instead.
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
            # Every trajectory counts once, even if its only prompt was never asked.
            length = length or 1
            unit = 1.0 / length
        else:
            unit = 1.0
        entries.append((end, rewards[end], unit * (length - wrong)))
        if wrong:
            entries.append((end, rewards[end] - penalty, unit * wrong))
    return entries


def mean_penalty(survey: Survey) -> float:
    """The mean penalty per step of each live trajectory, averaged; 0 without any."""
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
    """Figures of the path that ends in each step, by step id."""

    first: list[int]
    """The first step of the path."""
    length: list[int]
    """The number of its steps, without one whose prompt was too long to be asked."""
    invalid: list[int]
    """The number of its invalid steps."""


@once
def path_counts(survey: Survey) -> PathCounts:
    """Computes the figures of all paths in one pass."""
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
