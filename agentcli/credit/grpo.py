"""grpo: every step gets its trajectory's normalised outcome (DeepSeekMath 4.1.2).

    A_i = (R_i - mean R) / (std R + 1e-6)        over the leaves of the tree

A step shared by several leaves gets their mean. The penalty of an invalid step is part
of the baseline: leaves.Leaves has the formula. Apart from that, the steps of one
trajectory all get the same advantage; rewardflow distinguishes them.
"""

from agentcli.credit.leaves import Leaves, outcome_among_leaves
from agentcli.credit.registry import with_release
from agentcli.credit.survey import AdvantageParts, survey_of
from agentcli.credit.switches import GroupSwitches, Switches
from agentcli.records.types import Credit, Tree


class GrpoSettings(GroupSwitches, kw_only=True):
    """Settings of grpo: the group switches only."""


@with_release
def assign(
    tree: Tree, settings: GrpoSettings, leaves_of: type[Leaves] = Leaves
) -> Credit:
    """Returns one StepCredit per row.

    parts: reward (mean outcome reward of the row's leaves), penalty, baseline (the
    group's mean).
    """
    return group_credit("grpo", tree, settings, settings.normalise, leaves_of)


def group_credit(
    method: str,
    tree: Tree,
    settings: Switches,
    how: str,
    leaves_of: type[Leaves] = Leaves,
) -> Credit:
    """Each row's outcome less its penalty, among the leaves (also arpo, rloo, spark).

    `how` as in group.scale_of.
    """
    survey = survey_of(tree, settings)
    leaves = leaves_of(survey, settings, how)
    scale = leaves.scale

    def advantage(step: int, reward: float) -> AdvantageParts:
        penalty = survey.penalties[step]
        parts = {"reward": reward, "penalty": penalty, "baseline": scale.center}
        return scale(reward - penalty), parts  # RewardFlow eq. 8

    rows = survey.rows(leaves.prefix)
    return survey.credit(method, rows, advantage, facts=leaves.facts)


EQUATIONS = outcome_among_leaves()
