"""treerl and treerpo: fork random nodes until there are N leaves (CARL App. C.5).

Both papers grow full trees, exponential in depth. For agents, CARL forks "a limited
number of nodes" at random instead; it says so of TreeRPO, and of TreeRL the credit
alone, so that here both grow alike and differ only in their credit. That is CARL's
growth with states drawn at random.
"""

from agentcli.exploration.actor import Actor
from agentcli.exploration.carl import fork_progressively
from agentcli.exploration.settings import RootedRollout
from agentcli.records.types import Tree


async def explore(actor: Actor, settings: RootedRollout) -> Tree:
    """Grows `roots` trajectories, then forks up to `leaves` leaves.

    Raises UsageError when roots exceed leaves.
    """
    await fork_progressively(actor, settings, "random")
    return actor.tree(settings.method)
