"""chain: N independent trajectories from the initial state, the rollout of GRPO and its
kin.

With prompt.style react and no training this is ReAct. A slow trajectory never holds up
another.
"""

import asyncio

from agentcli.exploration.actor import Actor
from agentcli.exploration.nodes import Node
from agentcli.records.settings import RolloutSettings
from agentcli.records.types import Tree


async def explore(actor: Actor, settings: RolloutSettings) -> Tree:
    """A tree that branches only at the root, with exactly `leaves` leaves."""
    root = await actor.start()
    await asyncio.gather(
        *(follow(actor, root, index) for index in range(settings.leaves))
    )
    return actor.tree("chain")


async def follow(actor: Actor, node: Node, index: int = 0) -> list[Node]:
    """Act from `node` to the end of one trajectory: `node` and every node reached after
    it.
    """
    path = [node, await actor.act(node, index)]
    while not path[-1].finished:
        path.append(await actor.act(path[-1]))
    return path
