"""SPARK: M roots, branching where the policy says <explore>, under a budget of N leaves (000 section 2.2, Algorithm 1).

The frontier holds every unfinished trajectory in a fixed order. In each round all of them act; then, in that order, each
decides how many continuations its new state gets: b_eff = min(B, N - N_current + 1) after an <explore> step (eq. 5-7),
else one. N_current counts every leaf, finished or not, so the tree never has more than N; once it has N, nobody waits for a
round any longer. `--branch fixed:P` replaces the trigger by a coin (Table 4's ablation), `--branch entropy` by a rise of
entropy as in ARPO.
"""

import asyncio

from agentcli.exploration.actor import Actor, Node
from agentcli.exploration.budget import first_leaves
from agentcli.exploration.chain import follow
from agentcli.exploration.triggers import Trigger, trigger
from agentcli.records.settings import RolloutSettings, Settings
from agentcli.records.types import Tree


async def explore(actor: Actor, settings: Settings) -> Tree:
    """A forest of `roots` trees (children of the root) with at most `leaves` leaves.

    Raises UsageError when roots exceed leaves, `branch` is no known criterion, or it needs log-probabilities and there are none.
    """
    await branch_out(actor, settings.rollout, trigger(settings.rollout.branch, actor))
    return actor.tree("spark")


async def branch_out(actor: Actor, rollout: RolloutSettings, triggered: Trigger) -> tuple[Node, int]:
    """Grow `roots` trajectories to their ends, branching where it is triggered: the initial state and the number of leaves."""
    current = actor.roots = first_leaves(rollout)
    root = await actor.start()
    frontier = [(root, index) for index in range(current)]
    while frontier and current < rollout.leaves:
        reached = await asyncio.gather(*(actor.act(node, index) for node, index in frontier))
        frontier = []
        for node in reached:
            if node.finished:
                continue
            width = min(rollout.branching, rollout.leaves - current + 1) if triggered(node) else 1
            current += width - 1
            frontier += [(node, index) for index in range(width)]
    await asyncio.gather(*(follow(actor, node, index) for node, index in frontier))
    return root, current
