"""rlvmr: grpo, plus a reward for reasoning of the right kind at the right moment.

Zhang et al. 2025, "RLVMR", section 3; release Tencent/digitalhuman.

    A = A_traj + w * A_tag        A_tag = (m - mean) / F over all steps of the tree with
                                  the same tag

    planning     m = 1 if the episode succeeded
    explore      m = 1 if the action is new in this trajectory
    reflection   m = 1 if the step before was invalid and the action differs from it
    other tags, invalid steps: 0

A step alone with its tag gets 0. A planning step shared by several leaves takes the
share that succeeded; m knows successes only, whatever `outcome` rewards. `form:
release` is in release/rlvmr.py.
"""

from collections.abc import Sequence
from typing import Literal

from agentcli.credit.common import GroupSwitches, in_range, unassigned
from agentcli.credit.equations import ADVANTAGE, Equation, Evidence
from agentcli.credit.group import (
    ROOT,
    Grouping,
    Survey,
    rows,
    scale_for,
    survey_of,
    visits,
)
from agentcli.credit.release import rlvmr as release
from agentcli.credit.terms import (
    add_group,
    outcome_among_leaves,
    outcome_evidence,
    row_leaves,
)
from agentcli.records.types import Credit, Step, Tree, Validity

WITHOUT = {
    "gamma": "a tag's reward is not discounted",
    "similarity": "it groups by tag, not by state",
}
TAGS = ("planning", "explore", "reflection")
PAPER = "Zhang et al. 2025, section 3"
EQUATIONS = (
    *outcome_among_leaves("trajectory"),
    Equation(
        "tag_reward",
        "won / leaves",
        "planning: the share of its leaves that succeeded",
        PAPER,
    ),
    Equation(
        "compared",
        "tag_reward",
        "how it compares among the steps with its tag",
        PAPER,
        among="tag",
    ),
    Equation("tag", "w * compared", "its part of the advantage"),
    Equation(ADVANTAGE, "trajectory + tag", "both parts", PAPER),
)
EARNS = {
    "explore": "1 if the action is new in this trajectory",
    "reflection": "1 if it mends an invalid step",
}


class RlvmrSettings(GroupSwitches, kw_only=True):
    """Raises UsageError naming the field."""

    w: float = 0.5
    """Weight of A_tag."""
    scale: Literal["std", "none"] | None = None
    """F of A_tag: the std plus 1e-6, or 1. Unset: as `normalise` divides."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scale = self.scale or ("std" if self.normalise == "std" else "none")
        in_range(self, "w", least=0)


TagRow = tuple[int, float, float]
"""Step, outcome reward, and the reward m of its tag."""


def assign(tree: Tree, settings: RlvmrSettings) -> Credit:
    """One StepCredit per row.

    parts: trajectory and tag (the summands, w included), tag_reward (m), tag_mean (what
    is taken from it).
    """
    survey = _survey(tree, settings)
    trajectory_scale = scale_for(survey, settings, settings.normalise)
    tags = _tags(tree, survey)
    tag_rows = _tag_rows(tree, survey, tags, settings)
    scales = _grouping(tag_rows, tags, survey, settings).scales
    credits = []
    for step, reward, earned in tag_rows:
        reason = survey.masked[step]
        if reason is not None:
            credits.append(unassigned(step, reason))
            continue
        scale = scales[tags[step]]
        trajectory = trajectory_scale(reward - survey.penalties[step])
        tag = settings.w * scale(earned)
        parts = {
            "trajectory": trajectory,
            "tag": tag,
            "tag_reward": earned,
            "tag_mean": scale.center,
        }
        credits.append(survey.credited(step, trajectory + tag, parts))
    return Credit(task=tree.task.id, method="rlvmr", steps=credits)


def _survey(tree: Tree, settings: RlvmrSettings) -> Survey:
    survey = survey_of(tree, settings)
    if settings.form == "release":
        release.forgive_inadmissible(survey, tree, settings.invalid_penalty)
    return survey


def _tags(tree: Tree, survey: Survey) -> list[str | None]:
    """Per step its tag, None for an invalid step and for one without one of TAGS."""
    tags: list[str | None] = []
    for step, invalid in zip(tree.steps, survey.invalid, strict=True):
        tags.append(step.tag if step.tag in TAGS and not invalid else None)
    return tags


def _tag_rows(
    tree: Tree, survey: Survey, tags: Sequence[str | None], settings: RlvmrSettings
) -> list[TagRow]:
    """Every row with m: of planning the share of its leaves that succeeded."""
    earned = _earned(tree, survey, tags, settings.form == "release")
    successes = [
        won / (leaves or 1) for won, leaves in zip(survey.won, survey.live, strict=True)
    ]
    rewarded = rows(survey, settings.prefix)
    succeeded = rows(survey, settings.prefix, successes)
    tag_rows = []
    for (step, reward), (_, share) in zip(rewarded, succeeded, strict=True):
        tag_rows.append(
            (step, reward, share if tags[step] == "planning" else earned[step])
        )
    return tag_rows


def _earned(
    tree: Tree, survey: Survey, tags: Sequence[str | None], release_form: bool
) -> list[float]:
    """m of explore and reflection steps, which depends on the steps before them only."""
    steps = tree.steps
    actions = [
        step.action if step.validity is not Validity.MALFORMED else None
        for step in steps
    ]
    tried: dict[str | None, int] = {}
    earned = [0.0] * len(steps)
    for visit in visits(survey):
        if visit < 0:
            tried[actions[~visit]] -= 1
            continue
        action = actions[visit]
        times = tried.get(action, 0)
        tried[action] = times + 1
        if tags[visit] == "explore":
            earned[visit] = float(action is not None and times == 0)
        elif tags[visit] == "reflection":
            parent = survey.parents[visit]
            # The release takes a first step for one that follows an invalid one.
            mended = (
                release_form if parent == ROOT else _mended(steps[parent], steps[visit])
            )
            earned[visit] = float(mended)
    return earned


def _mended(before: Step, step: Step) -> bool:
    """Whether the step before failed and this one does something else."""
    return before.validity is not Validity.VALID and before.action != step.action


def _grouping(
    tag_rows: Sequence[TagRow],
    tags: Sequence[str | None],
    survey: Survey,
    settings: RlvmrSettings,
) -> Grouping:
    """The rows with one tag, scored by m."""
    keys = [tags[step] for step, _, _ in tag_rows]
    entries = [
        (step, earned, float(survey.masked[step] is None))
        for step, _, earned in tag_rows
    ]
    if settings.form == "release":
        return release.grouping(keys, entries, _how(settings))
    return Grouping(keys, entries, _how(settings))


def _how(settings: RlvmrSettings) -> str:
    return "std" if settings.scale == "std" else "mean"


def evidence(tree: Tree, settings: RlvmrSettings, row: int) -> Evidence:
    """What EQUATIONS need for one row."""
    survey = _survey(tree, settings)
    step, ends = row_leaves(survey, settings.prefix, row)
    outcomes = scale_for(survey, settings, settings.normalise)
    evidence = outcome_evidence(
        tree, survey, settings, step, ends, outcomes, settings.normalise
    )
    tags = _tags(tree, survey)
    tag_rows = _tag_rows(tree, survey, tags, settings)
    tag = tags[step]
    if tag != "planning":
        what = EARNS.get(
            tag or "",
            "a step without one of the tags, or an invalid one, earns nothing",
        )
        evidence.add("tag_reward", tag_rows[row][2], f"{tag or 'no tag'}: {what}")
    what = f"rewards of the steps tagged {tag or 'otherwise'}"
    add_group(
        evidence,
        "tag",
        what,
        _grouping(tag_rows, tags, survey, settings),
        row,
        _how(settings),
    )
    return evidence
