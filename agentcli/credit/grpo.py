"""grpo: the outcome of a trajectory, normalised over the group, for every one of its
steps (002 section 2 and eq. 8).

A_i = (R_i - mean R) / (std R + 1e-6) over the leaves of the tree. A step shared by
several leaves takes their mean. The penalty of an invalid step is inside the baseline:
group.outcome_scale has the formula. Steps of one trajectory differ by their own penalty
only; for more see rewardflow.
"""

from agentcli.credit.common import GroupSwitches, unassigned
from agentcli.credit.equations import Evidence
from agentcli.credit.group import Scale, Survey, rows, scale_for, survey_of
from agentcli.credit.terms import outcome_among_leaves, outcome_evidence, row_leaves
from agentcli.records.types import Credit, Tree

EQUATIONS = outcome_among_leaves()


class GrpoSettings(GroupSwitches, kw_only=True):
    """The switches of a group only."""


def assign(tree: Tree, settings: GrpoSettings) -> Credit:
    """One StepCredit per row. parts: reward (mean outcome reward of the row's leaves),
    penalty, baseline (the group's mean).
    """
    return group_credit(tree, settings, "grpo")


def group_credit(tree: Tree, settings: GroupSwitches, method: str) -> Credit:
    """grpo under the name of `method`."""
    survey = survey_of(tree, settings)
    scale = scale_for(survey, settings, settings.normalise)
    return terminal_credit(tree, survey, scale, settings.prefix, method)


def terminal_credit(
    tree: Tree, survey: Survey, scale: Scale, prefix: str | None, method: str
) -> Credit:
    """The leaves' terminal rewards, less the step's penalty and scaled, on every step
    above them.
    """
    credits = []
    for step, reward in rows(survey, prefix):
        reason = survey.masked[step]
        if reason is not None:
            credits.append(unassigned(step, reason))
            continue
        penalty = survey.penalties[step]
        parts = {"reward": reward, "penalty": penalty, "baseline": scale.center}
        credits.append(survey.credited(step, scale(reward - penalty), parts))
    return Credit(task=tree.task.id, method=method, steps=credits)


def evidence(tree: Tree, settings: GroupSwitches, row: int) -> Evidence:
    """What EQUATIONS need for one row; also spark's."""
    survey = survey_of(tree, settings)
    step, ends = row_leaves(survey, settings.prefix, row)
    scale = scale_for(survey, settings, settings.normalise)
    return outcome_evidence(
        tree, survey, settings, step, ends, scale, settings.normalise
    )
