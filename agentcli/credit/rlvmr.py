"""rlvmr: grpo, plus a reward for the right kind of reasoning at the right time.

Zhang et al. 2025, "RLVMR", section 3; release Tencent/digitalhuman.

    A = A_traj + w * A_tag        A_tag = (m - mean) / F over all steps of the tree with
                                  the same tag

    planning     m = 1 if the episode succeeded
    explore      m = 1 if the action is new in this trajectory
    reflection   m = 1 if the previous step was invalid and its action was different
    other tags, invalid steps: m = 0

The only step with a tag gets A_tag 0. For a planning step shared by several leaves, m
is the share of them that succeeded. m depends on successes only, whatever `outcome`
says. `form: release` is in release/rlvmr.py.
"""

from collections.abc import Sequence
from typing import Literal

from agentcli.credit.equations import ADVANTAGE, Equation, Evidence
from agentcli.credit.group import Grouping, division, outcome_scale
from agentcli.credit.once import once
from agentcli.credit.release import rlvmr as release
from agentcli.credit.survey import ROOT, AdvantageParts, Survey, survey_of
from agentcli.credit.switches import GroupSwitches, in_range
from agentcli.credit.terms import add_group, group_evidence, outcome_among_leaves
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
    Equation(
        ADVANTAGE,
        "trajectory + tag",
        "both parts",
        PAPER,
    ),
)
EARNS = {
    "explore": "1 if the action is new in this trajectory",
    "reflection": "1 if it mends an invalid step",
    None: "a step without one of the tags, or an invalid one, earns nothing",
}


class RlvmrSettings(GroupSwitches, kw_only=True):
    """Settings of rlvmr: the group switches, and those of A_tag."""

    w: float = 0.5
    """Weight of A_tag, the comparison among steps with the same tag."""
    scale: Literal["std", "none"] | None = None
    """Divisor F of A_tag: std plus 1e-6, or none. Unset: as in `normalise`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scale = self.scale or ("std" if self.normalise == "std" else "none")
        in_range(self, "w")


TagRow = tuple[int, float, float]
"""Step id, outcome reward, and tag reward m."""


def assign(tree: Tree, settings: RlvmrSettings) -> Credit:
    """Returns one StepCredit per row.

    parts: trajectory and tag (the summands, w included), tag_reward (m), tag_mean (the
    mean that is subtracted from m).
    """
    survey = _survey(tree, settings)
    trajectory_scale = outcome_scale(survey, settings, settings.normalise)
    tags = _tags(tree, survey)
    rows = _tag_rows(tree, survey, tags, settings)
    scales = _grouping(rows, tags, survey, settings).scales

    def advantage(
        step: int,
        reward: float,
        tag_reward: float,
    ) -> AdvantageParts:
        scale = scales[tags[step]]
        parts = {
            "trajectory": trajectory_scale(reward - survey.penalties[step]),
            "tag": settings.w * scale(tag_reward),
            "tag_reward": tag_reward,
            "tag_mean": scale.center,
        }
        return parts["trajectory"] + parts["tag"], parts

    return survey.credit("rlvmr", rows, advantage)


@once
def _survey(tree: Tree, settings: RlvmrSettings) -> Survey:
    survey = survey_of(tree, settings)
    if settings.form == "release":
        release.forgive_inadmissible(survey, tree, settings.invalid_penalty)
    return survey


@once
def _tags(tree: Tree, survey: Survey) -> list[str | None]:
    """The tag of every step; None for an invalid step or a tag not in TAGS."""
    tags: list[str | None] = []
    for step, invalid in zip(tree.steps, survey.invalid, strict=True):
        tags.append(step.tag if step.tag in TAGS and not invalid else None)
    return tags


@once
def _tag_rows(
    tree: Tree,
    survey: Survey,
    tags: Sequence[str | None],
    settings: RlvmrSettings,
) -> list[TagRow]:
    """All rows, each with its m."""
    earned = _earned(tree, survey, tags, settings.form == "release")
    successes = [
        won / (leaves or 1) for won, leaves in zip(survey.won, survey.live, strict=True)
    ]
    outcome_rows = survey.rows(settings.prefix)
    success_rows = survey.rows(settings.prefix, successes)
    rows = []
    for (step, reward), (_, share) in zip(outcome_rows, success_rows, strict=True):
        # Planning is rewarded for what follows, the others for what came before.
        tag_reward = share if tags[step] == "planning" else earned[step]
        rows.append((step, reward, tag_reward))
    return rows


def _earned(
    tree: Tree,
    survey: Survey,
    tags: Sequence[str | None],
    release_form: bool,
) -> list[float]:
    """m of explore and reflection steps."""
    steps = tree.steps
    actions: list[str | None] = []
    for step in steps:
        malformed = step.validity is Validity.MALFORMED
        actions.append(None if malformed else step.action)
    tried: dict[str | None, int] = {}
    earned = [0.0] * len(steps)
    for visit in survey.visits():
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
            # In the release a first step counts as following an invalid one.
            mended = release_form
            if parent != ROOT:
                mended = _mended(steps[parent], steps[visit])
            earned[visit] = float(mended)
    return earned


def _mended(before: Step, step: Step) -> bool:
    """Whether the previous step was invalid and this one does something else."""
    return before.validity is not Validity.VALID and before.action != step.action


@once
def _grouping(
    rows: Sequence[TagRow],
    tags: Sequence[str | None],
    survey: Survey,
    settings: RlvmrSettings,
) -> Grouping:
    """The rows grouped by tag, scored by m."""
    keys = []
    entries = []
    for step, _, tag_reward in rows:
        keys.append(tags[step])
        entries.append((step, tag_reward, float(survey.masked[step] is None)))
    group = release.grouping if settings.form == "release" else Grouping
    return group(keys, entries, division(settings.scale))


def evidence(
    tree: Tree,
    settings: RlvmrSettings,
    row: int,
) -> Evidence:
    """The evidence that EQUATIONS need for one row."""
    survey = _survey(tree, settings)
    evidence = group_evidence(tree, survey, settings, row)
    tags = _tags(tree, survey)
    rows = _tag_rows(tree, survey, tags, settings)
    step, _, tag_reward = rows[row]
    tag = tags[step]
    if tag != "planning":
        words = EARNS[tag]
        evidence.add("tag_reward", tag_reward, f"{tag or 'no tag'}: {words}")
    grouping = _grouping(rows, tags, survey, settings)
    words = f"rewards of the steps tagged {tag or 'otherwise'}"
    add_group(evidence, "tag", words, grouping, row)
    return evidence
