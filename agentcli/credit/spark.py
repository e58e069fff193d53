"""spark: grpo over the leaves of a branching tree (000 section 2.2, stage 4).

The completed leaves of one task, M <= |G| <= N, are one group; their binary terminal
reward goes to every step above them and a shared prefix is one row. That is grpo on a
tree, so only the defaults differ: SPARK rewards success with 10 (000 B.4). `form:
release` is its authors' batch: one row per leaf and step, prefixes repeated; with
`prefix: merge` their env_unique.
"""

from agentcli.credit.grpo import evidence, group_credit
from agentcli.credit.switches import GroupSwitches
from agentcli.credit.terms import outcome_among_leaves
from agentcli.records.types import Credit, Tree

__all__ = ["EQUATIONS", "SparkSettings", "assign", "evidence"]

EQUATIONS = outcome_among_leaves(source="000 section 2.2, stage 4 (grpo: 002 eq. 8)")


class SparkSettings(GroupSwitches, kw_only=True):
    """The switches of a group with SPARK's reward."""

    success_reward: float = 10.0


def assign(tree: Tree, settings: SparkSettings) -> Credit:
    """One StepCredit per row; parts as in grpo."""
    return group_credit(tree, settings, "spark")
