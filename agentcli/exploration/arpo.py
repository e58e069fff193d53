"""ARPO: samples more responses where a response is surprising (CARL App. C.5).

This is ARPO as CARL describes and compares it. `roots` trajectories start from the
initial state. H_t is the entropy of the response to the result of tool call t. Where
P = alpha + beta * (H_t - H_initial) > tau (eq. 28), the state in which this response
was sampled gets Z = B - 1 more responses, as long as the budget of N leaves lasts. Only
the first response in a state decides. The initial state is never branched, because no
call was made before it. When all trajectories have ended, the rest of the budget is
spent on new trajectories from the initial state: CARL wants equally many leaves
(section 6.2) and does not say where they come from.
"""

import msgspec

from agentcli.exploration.actor import Actor
from agentcli.exploration.chain import follow_all
from agentcli.exploration.spark import BranchingRollout, branch_out
from agentcli.exploration.triggers import BY_ENTROPY, EntropySettings, rising_entropy
from agentcli.records.types import Tree


class ArpoRollout(BranchingRollout, kw_only=True):
    """Settings of arpo."""

    entropy: EntropySettings = msgspec.field(default_factory=EntropySettings)

    @property
    def needs_chance(self) -> str:
        return BY_ENTROPY


async def explore(actor: Actor, settings: ArpoRollout) -> Tree:
    """Grows a tree with exactly `leaves` leaves.

    Raises UsageError when roots exceed leaves, and for a policy that gives no
    log-probabilities.
    """
    settings.check()
    actor.roots = settings.roots
    # H_initial is kept for each root: all forks of a trajectory share its first step.
    rises = rising_entropy(settings.entropy, "--method spark")
    root = await actor.start()
    # Z = B - 1. N is shared by all trajectories, first come in the fixed order.
    leaves = await branch_out(actor, settings, root, rises, "at")
    # Ours: what the triggers left of N goes to new trajectories.
    left = settings.leaves - leaves
    await follow_all(actor, root, range(settings.roots, settings.roots + left))
    return actor.tree("arpo")
