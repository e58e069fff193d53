"""The group of leaves as the releases of grpo, spark, rloo, gigpo and rlvmr compare it.

Their trainer holds one row for each step, with prefixes repeated for every leaf.

- `over: trajectories`: one entry for each leaf, R minus the penalty of the
  trajectory's first step only: the release keeps the first row it meets.
- `over: steps`: one entry for each row, so that a trajectory of T steps counts T times.

A single row is left uncentred (mean 0, std 1). Several rows are centred even if one
trajectory made them all.
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
    """group.outcome_scale in the release's form."""
    entries = release_entries(survey, form)
    # The release counts rows, not trajectories.
    if sum(weight for _, _, weight in entries) == 1:
        return alone(normalise)
    return scale_of(entries, normalise, smallest_std(normalise))


def release_entries(survey: Survey, form: GroupForm) -> list[Entry]:
    """One entry for each row, or each leaf, of the release's group."""
    if form.over == "steps":
        return outcome_entries(survey, form)
    first = path_counts(survey).first
    entries = []
    for end in survey.live_ends():
        penalty = survey.penalties[first[end]]
        entries.append((end, survey.rewards[end] - penalty, 1.0))
    return entries


def alone(normalise: str) -> Scale:
    """The release's scale of a group of one row."""
    return Scale(0.0, 1.0 / (1.0 + EPSILON) if normalise == "std" else 1.0)


def smallest_std(normalise: str) -> float:
    """The spread below which a group gets 0."""
    # Without the division there is no small spread to guard against.
    return 0.0 if normalise == "mean" else SMALLEST_STD
