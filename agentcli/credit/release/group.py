"""The group of leaves as the releases of grpo, spark, rloo, gigpo and rlvmr compare it.

Over trajectories a leaf scores R less the penalty of the *first* step of its
trajectory, once. A group of one row is left as it is (mean 0, std 1). Over steps the
release counts rows: a single trajectory of T steps is a group of T rows.
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
    # Weights are whole rows here. Several rows of one trajectory are a group, and lose
    # their mean.
    if sum(weight for _, _, weight in entries) == 1:
        return alone(normalise)
    return scale_of(entries, normalise, smallest_std(normalise))


def release_entries(survey: Survey, form: GroupForm) -> list[Entry]:
    """The members of that group."""
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
    # Differences that are divided by nothing are never too small.
    return 0.0 if normalise == "mean" else SMALLEST_STD
