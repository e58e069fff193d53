"""The group of leaves as the releases of grpo, spark, rloo, gigpo and rlvmr normalise
it.

Over trajectories a leaf scores R less the penalty of the *first* step of its
trajectory, once. A group of one row is left as it is (mean 0, std 1). Over steps the
release counts rows: a single trajectory of T steps is a group of T rows.
"""

from agentcli.credit.group import (
    EPSILON,
    SMALLEST_STD,
    Entry,
    Scale,
    Survey,
    outcome_entries,
    path_counts,
    scale_of,
)


def outcome_scale(
    survey: Survey, *, normalise: str, over: str | None, prefix: str | None
) -> Scale:
    """group.outcome_scale in the release's form."""
    entries = release_entries(survey, over, prefix)
    # Weights are whole rows here. Several rows of one trajectory are a group, and lose
    # their mean.
    if sum(weight for _, _, weight in entries) == 1:
        return alone(normalise)
    return scale_of(entries, normalise, smallest_std(normalise))


def release_entries(
    survey: Survey, over: str | None, prefix: str | None
) -> list[Entry]:
    """The members of that group."""
    if over == "steps":
        return outcome_entries(survey, over, prefix)
    first, _, _ = path_counts(survey)
    return [
        (end, survey.rewards[end] - survey.penalties[first[end]], 1.0)
        for end in survey.live_ends()
    ]


def alone(normalise: str) -> Scale:
    """What the release makes of a group of one row."""
    return Scale(0.0, 1.0 / (1.0 + EPSILON) if normalise == "std" else 1.0)


def smallest_std(normalise: str) -> float:
    """The spread below which a group gets 0: differences that are divided by nothing
    are never too small.
    """
    return 0.0 if normalise == "mean" else SMALLEST_STD
