"""grpo: the outcome of a trajectory, normalised over the group, for every one of its steps (002 section 2 and eq. 8).

A_i = (R_i - mean R) / (std R + 1e-6) over the leaves of the tree. A step shared by several leaves takes their mean. The
penalty of an invalid step is inside the baseline: common.group_of has the formula. No step is told from another except by
its own penalty; for that see rewardflow.
"""

from agentcli.credit.common import ERRORED, Switches, group_of, rows
from agentcli.records.types import Credit, StepCredit, Tree


class GrpoSettings(Switches, kw_only=True):
    """The shared switches only."""


def assign(tree: Tree, settings: GrpoSettings) -> Credit:
    """One StepCredit per row. parts: reward (mean outcome reward of the row's leaves), penalty, baseline (the group's mean)."""
    return terminal_credit(tree, settings, "grpo")


def terminal_credit(tree: Tree, switches: Switches, method: str) -> Credit:
    """The leaves' normalised terminal rewards on every step above them, under the name of `method`."""
    group = group_of(tree, switches)
    credits = []
    for step, reward in rows(tree, group, switches.prefix):
        if reward is None:
            credits.append(StepCredit(step=step, advantage=None, masked=ERRORED))
            continue
        parts = {"reward": reward, "penalty": group.penalties[step], "baseline": group.scale.center}
        credits.append(StepCredit(step=step, advantage=group.advantage(step, reward), parts=parts))
    return Credit(task=tree.task.id, method=method, steps=credits)
