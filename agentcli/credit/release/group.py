"""Groups as in the releases of grpo, spark, rloo, gigpo and rlvmr.

Their trainer has one row per step, with prefixes repeated for every leaf.

- `over: trajectories`: one entry per leaf, R minus the penalty of the trajectory's
  first step only, because the release keeps the first row it sees.
- `over: steps`: one entry per row, so a trajectory of T steps counts T times.

A single row is not centred (mean 0, std 1). Several rows are centred even if they all
come from one trajectory.
"""

from functools import cached_property

from agentcli.credit.group import (
    EPSILON,
    SMALLEST_STD,
    Entry,
    Grouping,
    Scale,
    scale_of,
)
from agentcli.credit.leaves import Leaves, path_counts


class ReleaseLeaves(Leaves):
    """The release's form of the group of leaves."""

    @cached_property
    def scale(self) -> Scale:
        """The release counts rows, not trajectories."""
        if sum(weight for _, _, weight in self.entries) == 1:
            return alone(self.how)
        return release_scale(self.entries, self.how)

    @cached_property
    def entries(self) -> list[Entry]:
        """The entries of the group: one per row, or one per leaf."""
        if self.over == "steps":
            return super().entries
        survey = self.survey
        first = path_counts(survey).first
        entries = []
        for end in survey.live_ends():
            penalty = survey.penalties[first[end]]
            entries.append((end, survey.rewards[end] - penalty, 1.0))
        return entries

    @property
    def words(self) -> str:
        """What the entries are, in words."""
        if self.over == "steps":
            return super().words
        return (
            "every leaf is one entry: its reward less the penalty of its "
            "trajectory's first step"
        )


class ReleaseGrouping(Grouping):
    """Entries grouped by key, as gigpo's release normalises each group."""

    def _scale(self, group: list[Entry]) -> Scale:
        return release_scale(group, self.normalise)


class UncentredGrouping(Grouping):
    """Entries grouped by key, as rlvmr's release does: one row alone keeps its score."""

    def _scale(self, group: list[Entry]) -> Scale:
        scale = release_scale(group, self.normalise)
        return alone(self.normalise) if scale.weight == 1 else scale


def release_scale(group: list[Entry], how: str) -> Scale:
    """The normalisation of a group; where nothing is divided, a small std does no harm."""
    return scale_of(group, how, SMALLEST_STD if how == "std" else 0.0)


def alone(how: str) -> Scale:
    """The release's scale for a group of one row."""
    return Scale(0.0, 1.0 / (1.0 + EPSILON) if how == "std" else 1.0)
