"""rloo: a trajectory's outcome minus the mean of the *other* trajectories' outcomes.

Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free!".

    A_i = R_i - 1/(G-1) sum_{j != i} R_j = (R_i - mean R) * G / (G - 1)

over the G leaves of the tree, the same for all steps of i. Nothing is divided by a std,
so there is no `normalise`. With a penalty, the row of step t has the score x_it = R_i -
p [invalid] as in leaves.Leaves, and A_it = (x_it - mean) * W / (W - 1). W is the
group's weight: G with over trajectories, the number of rows with over steps (as in the
release). A group of one gets 0; in the release it keeps its score.
"""

from agentcli.credit.grpo import group_credit
from agentcli.credit.leaves import Leaves, outcome_among_leaves
from agentcli.credit.registry import with_release
from agentcli.credit.switches import RowSwitches
from agentcli.records.types import Credit, Tree


class RlooSettings(RowSwitches, kw_only=True):
    """Settings of rloo: the row switches only."""


@with_release
def assign(
    tree: Tree, settings: RlooSettings, leaves_of: type[Leaves] = Leaves
) -> Credit:
    """Returns one StepCredit per row.

    parts: as in grpo; `baseline` is the mean that includes the row's own trajectory.
    """
    return group_credit("rloo", tree, settings, "leave-one-out", leaves_of)


EQUATIONS = outcome_among_leaves(
    meaning="the outcome less the mean of the other trajectories' outcomes",
    source="Kool et al. 2019",
)
