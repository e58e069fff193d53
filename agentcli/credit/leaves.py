"""The group of a tree's leaves: as in GRPO, each outcome is compared with the others.

Errored leaves are left out of every statistic.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from agentcli.credit.equations import ADVANTAGE, PENALTY, Equation, Evidence
from agentcli.credit.group import Entry, Scale, scale_of
from agentcli.credit.survey import ROOT, Survey, score_sums
from agentcli.credit.switches import RowSwitches, Switches
from agentcli.records.types import Outcome

GRPO = "DeepSeekMath section 4.1.2, RewardFlow eq. 8"
"""The source of the outcome normalised over the group."""


class Leaves:
    """The leaves of a tree, with the penalty inside the baseline.

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

    `how` as in group.scale_of. A method without the switches `over` and `prefix` counts
    every trajectory once and merges.
    """

    def __init__(self, survey: Survey, switches: Switches, how: str) -> None:
        self.survey = survey
        self.how = how
        self.over: str | None = "trajectories"
        self.prefix: str | None = "merge"
        if isinstance(switches, RowSwitches):
            self.over = switches.over
            self.prefix = switches.prefix
        self._by_score = switches.outcome == "score"

    @cached_property
    def scale(self) -> Scale:
        """The mean of the group, and the factor on the distance from it."""
        scale = scale_of(self.entries, self.how)
        # Also with over = steps: the rows of one trajectory differ in penalties only.
        if self.survey.live[ROOT] <= 1:
            scale.factor = 0.0
        return scale

    @cached_property
    def entries(self) -> list[Entry]:
        """The entries of the group.

        Each leaf has one entry for its valid rows and one for its invalid rows. With
        over = steps and prefix = merge, each step has one entry instead.
        """
        survey = self.survey
        rewards = survey.rewards
        penalties = survey.penalties
        entries = []
        if self._one_entry_per_step:
            for step, penalty in enumerate(penalties):
                if survey.live[step] and survey.asked[step]:
                    entries.append((step, rewards[step] - penalty, 1.0))
            return entries
        counts = path_counts(survey)
        # Penalties are 0 or p, so the largest is p (0 where no step is invalid).
        penalty = max(penalties, default=0.0)
        for end in survey.live_ends():
            length = counts.length[end]
            wrong = counts.invalid[end]
            if self.over == "trajectories":
                # Every trajectory counts once, even if its only prompt was never asked.
                length = length or 1
                unit = 1.0 / length
            else:
                unit = 1.0
            # The rows of a trajectory have two scores only, R and R - p: two weighted
            # entries stand for all of them, and the group stays small.
            entries.append((end, rewards[end], unit * (length - wrong)))
            if wrong:
                # Part of the baseline: otherwise a group without a success would have a
                # negative gradient and nothing else.
                entries.append((end, rewards[end] - penalty, unit * wrong))
        return entries

    @property
    def _one_entry_per_step(self) -> bool:
        return self.over == "steps" and self.prefix == "merge"

    @property
    def words(self) -> str:
        """What the entries are, in words."""
        if self._one_entry_per_step:
            return "every step of the tree is one entry: reward - penalty"
        own = self.over == "trajectories"
        weight = "1, however long" if own else "its number of steps"
        return (
            "the reward of the valid steps of a trajectory, reward - penalty of its "
            f"invalid ones; together they weigh {weight}"
        )

    def facts(self, row: int, step: int, *_: float) -> Evidence:
        """What `outcome_among_leaves` needs for one row of Survey.rows."""
        evidence = Evidence()
        ends = self.ends_of(row, step)
        steps = self.survey.tree.steps
        won = sum(steps[end].outcome is Outcome.SUCCESS for end in ends)
        evidence.add("won", won, "of its leaves that succeeded")
        if self._by_score:
            words = (
                "sum over its leaves of the world's own rewards along their "
                "trajectories"
            )
            total = sum((self._scores[end] for end in ends), Fraction(0))
            evidence.add("earned", float(total), words)
        else:
            evidence.add("earned", won)
        evidence.add("leaves", len(ends))
        add_penalty(evidence, self.survey, step)
        ids = {step} if self._one_entry_per_step else set(ends)
        places = {n for n, entry in enumerate(self._members) if entry[0] in ids}
        evidence.group(
            "leaves", self.words, self._members, places, self.scale, self.how
        )
        return evidence

    def ends_of(self, row: int, step: int) -> list[int]:
        """The live leaves whose outcomes a row averages."""
        if self.prefix != "merge":
            return [self._row_ends[row]]
        # The last element is the root's; it stays False, so first steps start outside.
        inside = [False] * len(self.survey.live)
        for number, parent in enumerate(self.survey.parents):
            inside[number] = number == step or inside[parent]
        return [end for end in self.survey.live_ends() if inside[end]]

    @cached_property
    def _row_ends(self) -> list[int]:
        """The leaf of every row, where each leaf has rows of its own."""
        return [end for end, steps in self.survey.leaf_rows() for _ in steps]

    @cached_property
    def _scores(self) -> list[Fraction]:
        return score_sums(self.survey.tree)

    @cached_property
    def _members(self) -> Sequence[Entry]:
        """The entries, those with equal step and score merged into one."""
        weights: dict[tuple[int, float], float] = {}
        for step, score, weight in self.entries:
            weights[step, score] = weights.get((step, score), 0.0) + weight
        return [(step, score, weight) for (step, score), weight in weights.items()]


class PathCounts(NamedTuple):
    """Figures of the path that ends in each step, by step id."""

    first: list[int]
    """The first step of the path."""
    length: list[int]
    """The number of its steps, without one whose prompt was too long to be asked."""
    invalid: list[int]
    """The number of its invalid steps that are the policy's own."""


def path_counts(survey: Survey) -> PathCounts:
    """Computes the figures of all paths in one pass."""
    size = len(survey.parents)
    counts = PathCounts(
        list(range(size)),
        list(survey.asked),
        list(map(int, survey.penalised)),
    )
    first, length, invalid = counts
    for step, parent in enumerate(survey.parents):
        if parent != ROOT:
            first[step] = first[parent]
            length[step] += length[parent]
            invalid[step] += invalid[parent]
    return counts


def add_penalty(evidence: Evidence, survey: Survey, step: int) -> None:
    """Adds the penalty inside the step's score, and words for one charged outside."""
    words = None
    if survey.charges is not None:
        words = "0 inside the score: the penalty is charged after it"
    evidence.add("penalty", survey.penalties[step], words)
    evidence.words["charge"] = "penalty outside the comparison, of an invalid step only"


EARNED = Equation("earned", None, "of its leaves that succeeded")
LEAVES = Equation(
    "leaves", None, "leaves below it that did not error, whose outcomes the row holds"
)


def outcome_among_leaves(
    name: str = ADVANTAGE,
    meaning: str = "how the outcome compares within the group of leaves",
    source: str = GRPO,
) -> tuple[Equation, ...]:
    """The equations of Leaves: reward less penalty, compared."""
    reward = "success_reward * earned / leaves"
    return (
        EARNED,
        LEAVES,
        Equation("reward", reward, "outcome reward of the row"),
        PENALTY,
        Equation(name, "reward - penalty", meaning, source, among="leaves"),
    )
