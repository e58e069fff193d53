"""The group of leaves as in the releases of grpo, spark, rloo, gigpo and rlvmr.

Their trainer has one row per step, with prefixes repeated for every leaf.

- `over: trajectories`: one entry per leaf, R minus the penalty of the trajectory's
  first step only, because the release keeps the first row it sees.
- `over: steps`: one entry per row, so a trajectory of T steps counts T times.

A single row is not centred (mean 0, std 1). Several rows are centred even if they all
come from one trajectory.
"""

from agentcli.credit.group import (
    EPSILON,
    SMALLEST_STD,
    Entry,
    GroupForm,
    Scale,
    outcome_entries,
    path_counts,
    scale_of,
)
from agentcli.credit.survey import Survey


def outcome_scale(
    survey: Survey,
    form: GroupForm,
    normalise: str,
) -> Scale:
    """The release's form of group.outcome_scale."""
    entries = release_entries(survey, form)
    # The release counts rows, not trajectories.
    if sum(weight for _, _, weight in entries) == 1:
        return alone(normalise)
    return scale_of(entries, normalise, smallest_std(normalise))


def release_entries(survey: Survey, form: GroupForm) -> list[Entry]:
    """The entries of the release's group: one per row, or one per leaf."""
    if form.over == "steps":
        return outcome_entries(survey, form)
    first = path_counts(survey).first
    entries = []
    for end in survey.live_ends():
        penalty = survey.penalties[first[end]]
        entries.append((end, survey.rewards[end] - penalty, 1.0))
    return entries


def alone(normalise: str) -> Scale:
    """The release's scale for a group of one row."""
    return Scale(0.0, 1.0 / (1.0 + EPSILON) if normalise == "std" else 1.0)


def smallest_std(normalise: str) -> float:
    """The std below which a group gets advantage 0."""
    # Without a division, a small std does no harm.
    return 0.0 if normalise == "mean" else SMALLEST_STD
