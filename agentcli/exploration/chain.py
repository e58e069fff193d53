"""chain: N independent trajectories from the initial state, the rollout of GRPO and its kin (methods.md section 2).

With a prompt and no training this is ReAct. A slow trajectory never holds up another.
"""

import asyncio

from agentcli.exploration.actor import Actor, Node
from agentcli.records.settings import Settings
from agentcli.records.types import Tree


async def explore(actor: Actor, settings: Settings) -> Tree:
    """A tree that branches only at the root, with exactly `rollout.leaves` leaves."""
    root = await actor.start()
    await asyncio.gather(*(follow(actor, root, index) for index in range(settings.rollout.leaves)))
    return actor.tree("chain")


async def follow(actor: Actor, node: Node, index: int = 0) -> Node:
    """Act from `node` to the end of one trajectory."""
    node = await actor.act(node, index)
    while not node.finished:
        node = await actor.act(node)
    return node
