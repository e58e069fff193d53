"""ARPO: trajectories branch where entropy rises after a step (003 App. C.5).

This is ARPO as 003 describes and compares it. `roots` trajectories start from the
initial state. After a step with P = alpha + beta * dH > tau (eq. 28) its state gets
Z = B - 1 continuations more, as long as the budget of N leaves lasts. That is spark's
growth with another trigger. What is left of the budget when all have ended is spent on
new trajectories from the initial state.
"""

import msgspec

from agentcli.exploration.actor import Actor
from agentcli.exploration.chain import follow_all
from agentcli.exploration.spark import BranchingRollout, branch_out
from agentcli.exploration.triggers import EntropySettings, rising_entropy
from agentcli.records.types import Tree


class ArpoRollout(BranchingRollout, kw_only=True):
    """Settings of arpo."""

    entropy: EntropySettings = msgspec.field(default_factory=EntropySettings)


async def explore(actor: Actor, settings: ArpoRollout) -> Tree:
    """Grows a tree with exactly `leaves` leaves.

    Raises UsageError when roots exceed leaves, and for a policy that gives no
    log-probabilities.
    """
    triggered = rising_entropy(settings.entropy, "--method spark")
    root, grown = await branch_out(actor, settings, triggered)
    left = settings.leaves - grown
    await follow_all(actor, root, range(settings.roots, settings.roots + left))
    return actor.tree("arpo")
