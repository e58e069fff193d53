"""grpo: every step gets its trajectory's normalised outcome (DeepSeekMath 4.1.2).

    A_i = (R_i - mean R) / (std R + 1e-6)        over the leaves of the tree

A step shared by several leaves gets their mean. The penalty of an invalid step is part
of the baseline: group.outcome_scale has the formula. Apart from that, the steps of one
trajectory all get the same advantage; rewardflow distinguishes them.
"""

from agentcli.credit.equations import Evidence
from agentcli.credit.group import Scale, form_of, outcome_scale
from agentcli.credit.survey import AdvantageParts, Survey, survey_of
from agentcli.credit.switches import GroupSwitches, NormalisedSwitches, Switches
from agentcli.credit.terms import group_evidence, outcome_among_leaves
from agentcli.records.types import Credit, Tree

EQUATIONS = outcome_among_leaves()


class GrpoSettings(GroupSwitches, kw_only=True):
    """Settings of grpo: the group switches only."""


def assign(tree: Tree, settings: GrpoSettings) -> Credit:
    """Returns one StepCredit per row.

    parts: reward (mean outcome reward of the row's leaves), penalty, baseline (the
    group's mean).
    """
    return group_credit(tree, settings, "grpo")


def group_credit(
    tree: Tree,
    settings: GroupSwitches | NormalisedSwitches,
    method: str,
) -> Credit:
    """The credit of grpo, recorded under the name `method`."""
    survey = survey_of(tree, settings)
    scale = outcome_scale(survey, settings, settings.normalise)
    return scaled_credit(survey, settings, scale, method)


def scaled_credit(
    survey: Survey,
    settings: Switches,
    scale: Scale,
    method: str,
) -> Credit:
    """Scales each row's outcome reward, less the step's penalty."""
    penalties = survey.penalties
    baseline = scale.center

    def advantage(step: int, reward: float) -> AdvantageParts:
        penalty = penalties[step]
        parts = {
            "reward": reward,
            "penalty": penalty,
            "baseline": baseline,
        }
        return scale(reward - penalty), parts  # RewardFlow eq. 8

    return survey.credit(method, survey.rows(form_of(settings).prefix), advantage)


def evidence(
    tree: Tree,
    settings: GroupSwitches | NormalisedSwitches,
    row: int,
) -> Evidence:
    """The evidence that EQUATIONS need for one row; spark and arpo use it too."""
    return group_evidence(tree, survey_of(tree, settings), settings, row)
