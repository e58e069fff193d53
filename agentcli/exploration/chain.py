"""chain: N independent trajectories from the initial state.

This is the rollout of GRPO and similar methods. With prompt.style react and no training
it is ReAct. Trajectories do not wait for each other.
"""

import asyncio
from collections.abc import Iterable

from agentcli.exploration.actor import Actor
from agentcli.exploration.nodes import Node
from agentcli.records.settings import RolloutSettings
from agentcli.records.types import Tree


async def explore(actor: Actor, settings: RolloutSettings) -> Tree:
    """Grows a tree that branches only at the root, with exactly `leaves` leaves."""
    root = await actor.start()
    await follow_all(actor, root, range(settings.leaves))
    return actor.tree("chain")


async def follow(
    actor: Actor, node: Node, index: int = 0, greedy: bool = False
) -> list[Node]:
    """Acts from `node` to the end of one trajectory; if `greedy`, at temperature 0.

    Returns `node` and every node reached after it.
    """
    path = [node]
    node = await actor.act(node, index, greedy)
    path.append(node)
    while not node.finished:
        node = await actor.act(node, greedy=greedy)
        path.append(node)
    return path


async def follow_all(
    actor: Actor,
    node: Node,
    indices: Iterable[int],
) -> list[list[Node]]:
    """Grows the children `indices` of `node` to their ends, all at the same time."""
    return await asyncio.gather(*(follow(actor, node, index) for index in indices))
