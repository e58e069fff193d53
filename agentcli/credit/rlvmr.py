"""rlvmr: grpo, plus a reward for reasoning of the right kind at the right moment (Zhang et al. 2025, "RLVMR", section 3; release
Tencent/digitalhuman).

    A = A_traj + w * A_tag        A_tag = (m - mean) / F over all steps of the tree with the same tag

    planning     m = 1 if the episode succeeded
    explore      m = 1 if the action is new in this trajectory
    reflection   m = 1 if the step before was invalid and the action differs from it
    other tags, invalid steps: 0

A step alone with its tag gets 0. A planning step shared by several leaves takes the share that succeeded; m knows successes only,
whatever `outcome` rewards.
`form: release`: step rows with prefixes repeated; only malformed steps are invalid, they lose their tag, and only they are
penalised; a first step counts as following an invalid one; a tag's only row keeps its reward.
"""

from typing import Literal

from agentcli.credit.account import Sheet
from agentcli.credit.common import GroupSwitches, in_range, unassigned
from agentcli.credit.group import (
    EPSILON,
    ROOT,
    SMALLEST_STD,
    Scale,
    Survey,
    rows,
    scale_for,
    scales_within,
    survey,
    visits,
)
from agentcli.credit.terms import alike, among_leaves, charge, end_line, told
from agentcli.records.types import Credit, Step, Tree, Validity

WITHOUT = {"gamma": "a tag's reward is not discounted", "similarity": "it groups by tag, not by state"}
TAGS = ("planning", "explore", "reflection")


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


def assign(tree: Tree, settings: RlvmrSettings) -> Credit:
    """One StepCredit per row. parts: trajectory and tag (the summands, w included), tag_reward (m), tag_mean (what is taken from
    it)."""
    seen = _survey(tree, settings)
    trajectory_scale = scale_for(seen, settings, settings.normalise)
    tags, found = _found(tree, seen, settings)
    scales = _tag_scales(found, tags, seen, settings)
    credits = []
    for step, reward, meant in found:
        reason = seen.masked[step]
        if reason is not None:
            credits.append(unassigned(step, reason))
            continue
        scale = scales[tags[step]]
        trajectory = trajectory_scale(reward - seen.penalties[step])
        tag = settings.w * scale(meant)
        parts = {"trajectory": trajectory, "tag": tag, "tag_reward": meant, "tag_mean": scale.center}
        credits.append(seen.credited(step, trajectory + tag, parts))
    return Credit(task=tree.task.id, method="rlvmr", steps=credits)


def _survey(tree: Tree, settings: RlvmrSettings) -> Survey:
    seen = survey(tree, settings)
    if settings.form == "release":
        seen.invalid = [step.validity is Validity.MALFORMED for step in tree.steps]
        seen.penalties = [settings.invalid_penalty * bad for bad in seen.invalid]
    return seen


def _found(
    tree: Tree, seen: Survey, settings: RlvmrSettings
) -> tuple[list[str | None], list[tuple[int, float, float]]]:
    """The tag of every step, and every row as (step, outcome reward, m)."""
    tags = [
        step.tag if step.tag in TAGS and not bad else None for step, bad in zip(tree.steps, seen.invalid, strict=True)
    ]
    earned = _earned(tree, seen, tags, settings.form == "release")
    found = []
    successes = [good / (all_ or 1) for good, all_ in zip(seen.won, seen.live, strict=True)]
    for (step, reward), (_, share) in zip(
        rows(seen, settings.prefix), rows(seen, settings.prefix, successes), strict=True
    ):
        meant = share if tags[step] == "planning" else earned[step]
        found.append((step, reward, meant))
    return tags, found


def _earned(tree: Tree, seen: Survey, tags: list[str | None], release: bool) -> list[float]:
    """m of explore and reflection steps, which depends on the steps before them only."""
    steps, parents = tree.steps, seen.parents
    actions = [step.action if step.validity is not Validity.MALFORMED else None for step in steps]
    tried: dict[str | None, int] = {}
    found = [0.0] * len(steps)
    for visit in visits(seen):
        if visit < 0:
            tried[actions[~visit]] -= 1
            continue
        action, tag, parent = actions[visit], tags[visit], parents[visit]
        times = tried.get(action, 0)
        tried[action] = times + 1
        if tag == "explore":
            found[visit] = float(action is not None and times == 0)
        elif tag == "reflection":
            found[visit] = float(release if parent == ROOT else _mended(steps[parent], steps[visit]))
    return found


def _mended(before: Step, step: Step) -> bool:
    """Whether the step before failed and this one does something else."""
    return before.validity is not Validity.VALID and before.action != step.action


def _tag_scales(
    found: list[tuple[int, float, float]], tags: list[str | None], seen: Survey, settings: RlvmrSettings
) -> dict[object, Scale]:
    release, divides = settings.form == "release", settings.scale == "std"
    names = [tags[step] for step, _, _ in found]
    scales: dict[object, Scale] = dict(
        scales_within(
            names,
            [meant for _, _, meant in found],
            [float(seen.masked[step] is None) for step, _, _ in found],
            "std" if divides else "mean",
            0.0 if release and not divides else SMALLEST_STD,
        )
    )
    if release:
        for name, scale in scales.items():
            if scale.weight == 1:
                scales[name] = Scale(0.0, 1.0 / (1.0 + EPSILON) if divides else 1.0)
    return scales


def explain(tree: Tree, settings: RlvmrSettings, row: int) -> Sheet:
    """The account of one row."""
    sheet, seen = Sheet(), _survey(tree, settings)
    (tags, found), about = _found(tree, seen, settings), told(seen, settings.prefix, row)
    outcomes, source = scale_for(seen, settings, settings.normalise), "Zhang et al. 2025, section 3"
    among_leaves(sheet, tree, seen, about, settings, outcomes, settings.normalise)
    tag, scales = tags[about.step], _tag_scales(found, tags, seen, settings)
    if tag == "planning":
        sheet.line("m", "won / leaves", "planning: the share of its leaves that succeeded", source)
    else:
        earns = {"explore": "1 if the action is new in this trajectory", "reflection": "1 if it mends an invalid step"}
        what = earns.get(tag or "", "a step without one of the tags, or an invalid one, earns nothing")
        sheet.given("m", found[row][2], f"{tag or 'no tag'}: {what}")
    names, what = [tags[step] for step, _, _ in found], f"rewards m of the steps tagged {tag or 'otherwise'}"
    group = alike(sheet, "tag", what, seen, [(step, meant, 1.0) for step, _, meant in found], names, row)
    sheet.given("w", settings.w, "setting")
    how = "std" if settings.scale == "std" else "mean"
    sheet.compare("compared", "m", group, scales[tag], how, "how it compares among the steps with its tag", source)
    sheet.line("tag", "w * compared", "its part of the advantage")
    sheet.line(end_line(seen), "trajectory + tag", "both parts", source)
    return charge(sheet, seen, about.step)
