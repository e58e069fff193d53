"""arpo: grpo over the leaves; a shared step gets the mean of its leaves' advantages.

ARPO as in CARL App. C.5 and eq. 22:

    A_shared = 1/d sum_i (R_i - mean) / (std + 1e-6)
             = (mean of the d leaves' R - mean) / (std + 1e-6)

The method is defined by merged prefixes and counts every leaf once, so it has no
switches `prefix` and `over`. CARL App. A.1 shows that it is biased where the
continuations of a state are forked unevenly; carl's credit is not.
"""

from agentcli.credit.grpo import group_credit
from agentcli.credit.leaves import outcome_among_leaves
from agentcli.credit.switches import NormalisedSwitches
from agentcli.records.types import Credit, Tree


class ArpoSettings(NormalisedSwitches, kw_only=True):
    """Settings of arpo: the switches of a group in which every leaf counts once."""


def assign(tree: Tree, settings: ArpoSettings) -> Credit:
    """Returns one StepCredit per step, with the same parts as grpo."""
    # The scale is linear, so the advantage of the mean R is the mean advantage.
    return group_credit("arpo", tree, settings, settings.normalise)


EQUATIONS = outcome_among_leaves(
    meaning="how the mean outcome of its leaves compares within the group of leaves",
    source="CARL App. C.5, eq. 22",
)
