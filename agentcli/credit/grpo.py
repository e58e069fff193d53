"""grpo: the outcome of a trajectory, normalised over the group, for every one of its steps (002 section 2 and eq. 8).

A_i = (R_i - mean R) / (std R + 1e-6) over the leaves of the tree. A step shared by several leaves takes their mean. The
penalty of an invalid step is inside the baseline: group.outcome_scale has the formula. No step is told from another except by
its own penalty; for that see rewardflow.
"""

from agentcli.credit.account import Sheet
from agentcli.credit.common import GroupSwitches, unassigned
from agentcli.credit.group import Scale, Survey, rows, scale_for, survey
from agentcli.credit.terms import GRPO, among_leaves, charge, end_line, told
from agentcli.records.types import Credit, Tree


class GrpoSettings(GroupSwitches, kw_only=True):
    """The switches of a group only."""


def assign(tree: Tree, settings: GrpoSettings) -> Credit:
    """One StepCredit per row. parts: reward (mean outcome reward of the row's leaves), penalty, baseline (the group's mean)."""
    return group_credit(tree, settings, "grpo")


def group_credit(tree: Tree, settings: GroupSwitches, method: str) -> Credit:
    """grpo under the name of `method`."""
    seen = survey(tree, settings)
    return terminal_credit(tree, seen, scale_for(seen, settings, settings.normalise), settings.prefix, method)


def terminal_credit(tree: Tree, seen: Survey, scale: Scale, prefix: str | None, method: str) -> Credit:
    """The leaves' terminal rewards, less the step's penalty and scaled, on every step above them."""
    credits = []
    for step, reward in rows(seen, prefix):
        reason = seen.masked[step]
        if reason is not None:
            credits.append(unassigned(step, reason))
            continue
        penalty = seen.penalties[step]
        parts = {"reward": reward, "penalty": penalty, "baseline": scale.center}
        credits.append(seen.credited(step, scale(reward - penalty), parts))
    return Credit(task=tree.task.id, method=method, steps=credits)


def explain(tree: Tree, settings: GroupSwitches, row: int, source: str = GRPO) -> Sheet:
    """The account of one row; also spark's."""
    sheet, seen = Sheet(), survey(tree, settings)
    about, scale = told(seen, settings.prefix, row), scale_for(seen, settings, settings.normalise)
    among_leaves(sheet, tree, seen, about, settings, scale, settings.normalise, end_line(seen), source=source)
    return charge(sheet, seen, about.step)
