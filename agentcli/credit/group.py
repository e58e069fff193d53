"""What a method sees of a tree: its leaves as a GRPO group, how a group is normalised,
and the training rows.

One pass over the steps in the order of their ids, where a parent comes before its
children: no recursion, so depth is no limit. Everything is float64, and sums are
integers or math.fsum, hence independent of the order of siblings. The group of a tree
is its leaves; errored ones are left out of every statistic. Lists are indexed by step
id. Those that also speak of the root, the state that every tree starts from, have it as
their last element, which is what the parent id -1 of a first step finds.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from agentcli.credit.common import (
    ERRORED,
    LARGEST,
    PenaltySwitches,
    RowSwitches,
    Switches,
    scores,
)
from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.types import Outcome, StepCredit, Tree, Validity

EPSILON = 1e-6
"""Added to every standard deviation before dividing by it."""
SMALLEST_STD = 1e-4
"""A group that spreads less gets advantage 0: what is left of it is float noise."""
ROOT = -1
"""Parent of the first steps."""
Entry = tuple[int, float, float]
"""One member of a group: id of its step or leaf, score, weight."""


@dataclass(slots=True)
class Scale:
    """How a score of a group becomes an advantage: (score - center) * factor. `weight`:
    of the whole group.
    """

    center: float
    factor: float
    weight: float = 1.0

    def __call__(self, score: float) -> float:
        return (score - self.center) * self.factor + 0.0


def scale_of(
    entries: Iterable[Entry], normalise: str, smallest_std: float = SMALLEST_STD
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
        return Scale(group[0][0], 0.0)
    total = math.fsum([weight for _, weight in group])
    mean = math.fsum([weight * score for score, weight in group]) / total
    if total <= 1 + 1e-9:
        return Scale(mean, 0.0, total)
    std = math.sqrt(
        math.fsum([weight * (score - mean) ** 2 for score, weight in group])
        / (total - 1)
    )
    if std < smallest_std:
        return Scale(mean, 0.0, total)
    return Scale(mean, 1.0 / (std + EPSILON) if normalise == "std" else 1.0, total)


class Grouping:
    """Entries that are compared with those of an equal key, one entry per row: a group
    and its scale for every key.
    """

    def __init__(
        self,
        keys: Sequence[Hashable],
        entries: Sequence[Entry],
        normalise: str,
        smallest_std: float = SMALLEST_STD,
    ) -> None:
        self.entries = entries
        self._keys = keys
        members: dict[Hashable, list[Entry]] = {}
        for key, entry in zip(keys, entries, strict=True):
            if key in members:
                members[key].append(entry)
            else:
                members[key] = [entry]
        self._members = members
        self.scales = {
            key: scale_of(group, normalise, smallest_std)
            for key, group in members.items()
        }

    def among(self, place: int) -> tuple[list[Entry], int, Scale]:
        """The group of the entry at `place` without the members of weight 0, the
        entry's position in it, and the group's scale.
        """
        key = self._keys[place]
        group = self._members[key]
        index = sum([other == key for other in self._keys[:place]])
        position = sum([weight > 0 for _, _, weight in group[:index]])
        return [entry for entry in group if entry[2] > 0], position, self.scales[key]


@dataclass(slots=True)
class Survey:
    """A tree as numbers, by step id. `live`, `won` and `rewards` also have the root, as
    their last element.
    """

    parents: list[int]
    """ROOT for a first step."""
    ends: list[int]
    """Ids of all leaves, errored ones included."""
    live: list[int]
    """Leaves below the step, itself included, that did not error."""
    won: list[int]
    """Those of them that succeeded."""
    rewards: list[float]
    """Mean outcome reward over the live leaves below (0 where there is none). Every
    outcome reward of a method comes from here.
    """
    invalid: list[bool]
    """Malformed or inadmissible."""
    penalties: list[float]
    """The step's own penalty inside its score, 0 or invalid_penalty; all 0 where there
    are `charges`.
    """
    masked: list[str | None]
    """Why the step cannot have an advantage: it leads only to errored leaves, or must
    not be imitated (Step.mask).
    """
    charges: list[float] | None = None
    """The step's penalty outside the normalisation (`penalty: outside`), which
    `credited` takes from its advantage.
    """

    def credited(
        self, step: int, advantage: float, parts: dict[str, float]
    ) -> StepCredit:
        """The row of a step that has an advantage; one more part, `charge`, where
        penalties are outside.
        """
        if self.charges is None:
            return StepCredit(step=step, advantage=advantage, parts=parts)
        charge = self.charges[step]
        return StepCredit(
            step=step, advantage=advantage - charge, parts={**parts, "charge": charge}
        )

    def children(self) -> list[list[int]]:
        """Per step, and the root as last element, the children that count: those with a
        live leaf.
        """
        children: list[list[int]] = [[] for _ in self.live]
        for step, parent in enumerate(self.parents):
            if self.live[step]:
                children[parent].append(step)
        return children

    def path(self, end: int) -> list[int]:
        """Ids from the first step to `end`."""
        walk = [end]
        while (parent := self.parents[walk[-1]]) != ROOT:
            walk.append(parent)
        return walk[::-1]

    def live_ends(self) -> list[int]:
        """Ids of the leaves that did not error."""
        return [end for end in self.ends if self.live[end]]


def survey_of(tree: Tree, switches: Switches) -> Survey:
    """Count a tree once; every method starts with this."""
    size = len(tree.steps)
    parents = [ROOT] * size
    live = [0] * (size + 1)
    won = [0] * (size + 1)
    invalid = [False] * size
    masked: list[str | None] = [None] * size
    ends = []
    for number, step in enumerate(tree.steps):
        if step.parent is not None:
            parents[number] = step.parent
        outcome = step.outcome
        if outcome is not None:
            ends.append(number)
            live[number] = outcome is not Outcome.ERRORED
            won[number] = outcome is Outcome.SUCCESS
        invalid[number] = step.validity is not Validity.VALID
        masked[number] = step.mask
    for number in range(size - 1, -1, -1):
        if live[number]:
            live[parents[number]] += live[number]
            won[parents[number]] += won[number]
        else:
            masked[number] = ERRORED
    reward = switches.success_reward
    if switches.outcome == "score":
        totals = _totals(tree, parents, live)
        rewards = [
            reward * float(total) / (leaves or 1)
            for total, leaves in zip(totals, live, strict=True)
        ]
        _refuse_unbounded(tree, ends, live, rewards)
    else:
        rewards = [
            reward * good / (leaves or 1)
            for good, leaves in zip(won, live, strict=True)
        ]
    penalties = [switches.invalid_penalty * bad for bad in invalid]
    charges = None
    if isinstance(switches, PenaltySwitches) and switches.penalty == "outside":
        charges = penalties
        penalties = [0.0] * size
    return Survey(
        parents, ends, live, won, rewards, invalid, penalties, masked, charges
    )


def _totals(tree: Tree, parents: list[int], live: list[int]) -> list[Fraction]:
    """Sum of the scores of the live leaves below every step, and the root as last
    element. Exact, so that no order of the siblings changes the last bit.
    """
    reached = scores(tree)
    totals = [Fraction(0)] * len(live)
    for number in range(len(parents) - 1, -1, -1):
        if live[number]:
            if tree.steps[number].outcome is not None:
                totals[number] = reached[number]
            totals[parents[number]] += totals[number]
    return totals


def _refuse_unbounded(
    tree: Tree, ends: list[int], live: list[int], rewards: list[float]
) -> None:
    """Raise DataError for a score that is too large for a reward."""
    for end in ends:
        if live[end] and not abs(rewards[end]) <= LARGEST:
            raise DataError(
                f"task {shown(tree.task.id)}: steps[{end}]: its trajectory's score "
                f"gives an outcome reward of {rewards[end]:g}, beyond {LARGEST:g}; "
                "lower credit.success_reward, or set credit.outcome to success"
            )


def outcome_scale(
    survey: Survey,
    *,
    normalise: str = "std",
    over: str | None = "trajectories",
    prefix: str | None = "merge",
) -> Scale:
    """Mean and std of the group of leaves, with the penalty inside the baseline.

    With R_i the outcome reward, T_i the steps and k_i the invalid steps of trajectory
    i, G trajectories, penalty p, the row of step t of trajectory i scores x_it = R_i -
    p [step t invalid] and weighs w_i:

        over = trajectories:  w_i = 1 / T_i      (W = G: every trajectory counts once)
        over = steps:         w_i = 1            (W = sum T_i); with prefix = merge a
                              shared step is one row

        mean = sum w_i x_it / W     std^2 = sum w_i (x_it - mean)^2 / (W - 1)     A_it =
                                    (x_it - mean) / (std + 1e-6)

    so the weighted sum of all advantages is 0 even where nobody succeeded, and without
    invalid steps over = trajectories is GRPO (002 eq. 8) to the letter. A merged step
    has the mean of its leaves' A_it. One trajectory alone: 0. With `penalty: outside` p
    is 0 here, and Survey.credited takes it from the advantage.
    """
    if survey.live[ROOT] <= 1:
        return Scale(0.0, 0.0)
    return scale_of(outcome_entries(survey, over, prefix), normalise)


def scale_for(survey: Survey, switches: RowSwitches, normalise: str) -> Scale:
    """`outcome_scale` in the form, and with the rows, that a method's switches ask for."""
    if switches.form == "release":
        from agentcli.credit.release.group import outcome_scale as release_scale

        return release_scale(
            survey, normalise=normalise, over=switches.over, prefix=switches.prefix
        )
    return outcome_scale(
        survey, normalise=normalise, over=switches.over, prefix=switches.prefix
    )


def outcome_entries(
    survey: Survey, over: str | None, prefix: str | None
) -> list[Entry]:
    """The group of `outcome_scale`: one entry per leaf for its valid rows and one for
    its invalid ones, or one per step.
    """
    rewards, penalties, live = survey.rewards, survey.penalties, survey.live
    if over == "steps" and prefix == "merge":
        return [
            (step, rewards[step] - penalties[step], 1.0)
            for step in range(len(penalties))
            if live[step]
        ]
    _, length, wrong = path_counts(survey)
    penalty = max(penalties, default=0.0)
    entries = []
    for end in survey.live_ends():
        unit = 1.0 / length[end] if over == "trajectories" else 1.0
        entries.append((end, rewards[end], unit * (length[end] - wrong[end])))
        if wrong[end]:
            entries.append((end, rewards[end] - penalty, unit * wrong[end]))
    return entries


def mean_penalty(survey: Survey) -> float:
    """Mean over the trajectories that count of the mean penalty of their steps; 0 where
    there is none.
    """
    penalty = max(survey.penalties, default=0.0)
    trajectories = survey.live[ROOT]
    if not penalty or not trajectories:
        return 0.0
    _, length, wrong = path_counts(survey)
    return (
        penalty
        * math.fsum([wrong[end] / length[end] for end in survey.live_ends()])
        / trajectories
    )


def path_counts(survey: Survey) -> tuple[list[int], list[int], list[int]]:
    """The first step of the path to every step, the length of that path, and its number
    of invalid steps.
    """
    first = list(range(len(survey.parents)))
    length = [1] * len(survey.parents)
    wrong = list(map(int, survey.invalid))
    for number, parent in enumerate(survey.parents):
        if parent != ROOT:
            first[number] = first[parent]
            length[number] += length[parent]
            wrong[number] += wrong[parent]
    return first, length, wrong


def rows(
    survey: Survey, prefix: str | None, values: Sequence[float] | None = None
) -> Iterator[tuple[int, float]]:
    """The training rows as (step id, outcome reward); those of masked steps have no
    advantage, whatever the reward. `values`, by step id, stand in the place of the
    rewards where they are given.

    merge: every step once, in order of ids, with the mean over its leaves. duplicate:
    leaf by leaf, root first; a step that leads only to errored leaves once, with the
    first of them.
    """
    values = survey.rewards if values is None else values
    if prefix == "merge":
        yield from zip(range(len(survey.parents)), values, strict=False)
        return
    lost: set[int] = set()
    for end in survey.ends:
        for step in survey.path(end):
            if survey.live[end]:
                yield step, values[end]
            elif not survey.live[step] and step not in lost:
                lost.add(step)
                yield step, 0.0


def visits(survey: Survey) -> Iterator[int]:
    """Walks depth first through the steps that count, siblings in the order of their
    ids.

    Yields n when step n is entered, and ~n (below 0) when everything under it was
    visited: a history of the path can be undone there. Each step comes twice, at any
    depth.
    """
    children = survey.children()
    ahead = children[ROOT][::-1]
    while ahead:
        step = ahead.pop()
        yield step
        if step >= 0:
            ahead.append(~step)
            ahead.extend(reversed(children[step]))
