"""treerl and treerpo: partial expansion, random nodes forked until there are N leaves
(003 App. C.5).

Both papers grow full trees, exponential in depth; for agents 003 forks "a limited
number of nodes" at random instead, for both alike. That is CARL's growth without its
criterion; what sets the two apart is their credit.
"""

from agentcli.exploration.actor import Actor
from agentcli.exploration.budget import RootedRollout
from agentcli.exploration.carl import fork_progressively
from agentcli.records.types import Tree


async def explore(actor: Actor, settings: RootedRollout) -> Tree:
    """A tree with `leaves` leaves, `roots` of them grown before the first fork.

    Raises UsageError when roots exceed leaves.
    """
    await fork_progressively(actor, settings, "random")
    return actor.tree(settings.method)
