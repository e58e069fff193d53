"""spark: grpo over the leaves of a branching tree (SPARK section 2.2, stage 4).

The completed leaves of one task, M <= |G| <= N, are one group. Their binary terminal
reward goes to every step above them, and a shared prefix is one row. That is grpo on a
tree; only the defaults differ: SPARK rewards success with 10 (SPARK B.4). `form:
release` is the authors' batch, with one row per leaf and step, so prefixes are
repeated; with `prefix: merge` as well, it is their env_unique.
"""

from agentcli.credit.grpo import group_credit
from agentcli.credit.leaves import Leaves, outcome_among_leaves
from agentcli.credit.registry import with_release
from agentcli.credit.switches import GroupSwitches
from agentcli.records.types import Credit, Tree


class SparkSettings(GroupSwitches, kw_only=True):
    """Settings of spark: the group switches, with SPARK's reward for success."""

    success_reward: float = 10.0


@with_release
def assign(
    tree: Tree, settings: SparkSettings, leaves_of: type[Leaves] = Leaves
) -> Credit:
    """Returns one StepCredit per row, with the same parts as grpo."""
    return group_credit("spark", tree, settings, settings.normalise, leaves_of)


EQUATIONS = outcome_among_leaves(
    source="SPARK section 2.2, stage 4 (grpo: RewardFlow eq. 8)"
)
