"""rlvmr: grpo, plus a reward for the right kind of reasoning at the right time.

Zhang et al. 2025, "RLVMR", section 3; release Tencent/digitalhuman.

    A = A_traj + w * A_tag        A_tag = (m - mean) / F over all steps of the tree with
                                  the same tag; w = (1 - alpha) / alpha of the paper

    planning     m = 1 if the episode succeeded
    explore      m = 1 if the action is new in this trajectory
    reflection   m = 1 if the previous step was invalid and its action was different
    other tags, invalid steps: m = 0

The only step with a tag gets A_tag 0. For a planning step shared by several leaves, m
is the share of them that succeeded. m depends on successes only, whatever `outcome`
says. `form: release` is in release/__init__.py.
"""

from collections.abc import Callable, Iterator
from typing import Literal

from agentcli.credit.equations import ADVANTAGE, Equation, Evidence
from agentcli.credit.group import Grouping, division
from agentcli.credit.leaves import Leaves, outcome_among_leaves
from agentcli.credit.registry import with_release
from agentcli.credit.survey import ROOT, AdvantageParts, Survey, survey_of
from agentcli.credit.switches import GroupSwitches, in_range
from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.types import IMPORTED, Credit, Tree, Validity

TAGS = ("planning", "explore", "reflection")


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


@with_release
def assign(
    tree: Tree,
    settings: RlvmrSettings,
    leaves_of: type[Leaves] = Leaves,
    grouping_of: type[Grouping] = Grouping,
    survey_by: Callable[[Tree, RlvmrSettings], Survey] = survey_of,
    first_mends: bool = False,
) -> Credit:
    """Returns one StepCredit per row; raises DataError for an import without any tag.

    parts: trajectory and tag (the summands, w included), tag_reward (m), tag_mean (the
    mean that is subtracted from m).
    """
    if tree.task.world == IMPORTED and not any(step.tag for step in tree.steps):
        raise DataError(
            f"task {shown(tree.task.id)}: steps[].tag: no step has any; rlvmr compares "
            "steps with the same tag, which an import does not read; take --method grpo"
        )
    survey = survey_by(tree, settings)
    leaves = leaves_of(survey, settings, settings.normalise)
    tags = _tags(survey)
    rows = []
    entries = []
    earned = _earned(survey, tags, first_mends)
    for step, reward, share in _outcomes(survey, settings.prefix):
        # Planning is rewarded for what follows, the others for what came before.
        tag_reward = share if tags[step] == "planning" else earned[step]
        rows.append((step, reward, tag_reward))
        entries.append((step, tag_reward, float(survey.masked[step] is None)))
    row_tags = [tags[row[0]] for row in rows]
    groups = grouping_of(row_tags, entries, division(settings.scale))

    def advantage(step: int, reward: float, tag_reward: float) -> AdvantageParts:
        scale = groups.scales[tags[step]]
        parts = {
            "trajectory": leaves.scale(reward - survey.penalties[step]),
            "tag": settings.w * scale(tag_reward),
            "tag_reward": tag_reward,
            "tag_mean": scale.center,
        }
        return parts["trajectory"] + parts["tag"], parts

    def facts(row: int, step: int, reward: float, tag_reward: float) -> Evidence:
        evidence = leaves.facts(row, step)
        tag = tags[step]
        if tag != "planning":
            words = f"{tag or 'no tag'}: {EARNS[tag]}"
            evidence.add("tag_reward", tag_reward, words)
        words = f"rewards of the steps tagged {tag or 'otherwise'}"
        evidence.compare("tag", words, groups, row)
        return evidence

    return survey.credit("rlvmr", rows, advantage, facts=facts)


def _tags(survey: Survey) -> list[str | None]:
    """The tag of every step; None for an invalid step or a tag not in TAGS."""
    tags: list[str | None] = []
    for step, invalid in zip(survey.tree.steps, survey.invalid, strict=True):
        tags.append(step.tag if step.tag in TAGS and not invalid else None)
    return tags


def _outcomes(survey: Survey, prefix: str | None) -> Iterator[tuple[int, float, float]]:
    """All rows as (step id, outcome reward, share of leaves that succeeded)."""
    successes = [
        won / (leaves or 1) for won, leaves in zip(survey.won, survey.live, strict=True)
    ]
    shares = survey.rows(prefix, successes)
    for (step, reward), (_, share) in zip(survey.rows(prefix), shares, strict=True):
        yield step, reward, share


def _earned(survey: Survey, tags: list[str | None], first_mends: bool) -> list[float]:
    """m of explore and reflection steps."""
    steps = survey.tree.steps
    actions: list[str | None] = []
    for step in steps:
        malformed = step.validity is Validity.MALFORMED
        actions.append(None if malformed else step.action)
    # How often each action was taken on the path to the step that is visited.
    tried: dict[str | None, int] = {}
    earned = [0.0] * len(steps)
    for visit in survey.visits():
        if visit < 0:
            # What was tried down here is new again for the siblings.
            tried[actions[~visit]] -= 1
            continue
        action = actions[visit]
        times = tried.get(action, 0)
        tried[action] = times + 1
        if tags[visit] == "explore":
            earned[visit] = float(action is not None and times == 0)
        elif tags[visit] == "reflection":
            parent = survey.parents[visit]
            # A first step follows nothing. Only the release counts it as mending.
            mended = first_mends
            if parent != ROOT:
                before = steps[parent]
                # The step before was invalid, and this one does something else.
                invalid = before.validity is not Validity.VALID
                mended = invalid and before.action != steps[visit].action
            earned[visit] = float(mended)
    return earned


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
    None: "a step without one of the tags, or an invalid one, earns nothing",
}
