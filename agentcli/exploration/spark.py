"""SPARK: M roots, branching where the policy says <explore>, under a budget of N leaves (000 section 2.2, Algorithm 1).

The frontier holds every unfinished trajectory in a fixed order. In each round all of them act; then, in that order, each
decides how many continuations its new state gets: b_eff = min(B, N - N_current + 1) after an <explore> step (eq. 5-7),
else one. N_current counts every leaf, finished or not, so the tree never has more than N. `--branch fixed:P` replaces
the trigger by a coin with probability P (Table 4's ablation), thrown from the state's own seed.
"""

import asyncio
import random
from collections.abc import Callable

from agentcli.errors import UsageError
from agentcli.exploration.actor import Actor, Node
from agentcli.records.files import derive_seed
from agentcli.records.settings import Settings
from agentcli.records.types import Tree

Trigger = Callable[[Node], bool]


async def explore(actor: Actor, settings: Settings) -> Tree:
    """A forest of `roots` trees (children of the root) with at most `leaves` leaves.

    Raises UsageError when roots exceed leaves or `branch` is no known criterion.
    """
    budget, branching = settings.rollout.leaves, settings.rollout.branching
    triggered = trigger(settings.rollout.branch, actor)
    if settings.rollout.roots > budget:
        raise UsageError(
            f"rollout.roots is {settings.rollout.roots}, more than rollout.leaves ({budget}); lower --roots"
        )
    root = await actor.start()
    frontier = [(root, index) for index in range(settings.rollout.roots)]
    current = len(frontier)
    while frontier:
        reached = await asyncio.gather(*(actor.act(node, index) for node, index in frontier))
        frontier = []
        for node in reached:
            if node.finished:
                continue
            width = min(branching, budget - current + 1) if triggered(node) else 1
            current += width - 1
            frontier += [(node, index) for index in range(width)]
    return actor.tree("spark")


def trigger(branch: str, actor: Actor) -> Trigger:
    """The branching criterion by its name: `explore`, or `fixed:P` with P in [0, 1]. Raises UsageError."""
    if branch == "explore":
        return lambda node: node.explores
    name, _, value = branch.partition(":")
    try:
        probability = float(value)
    except ValueError:
        probability = -1.0
    if name != "fixed" or not 0 <= probability <= 1:
        raise UsageError(f"rollout.branch is {branch!r}; use explore, or fixed:P with P from 0 to 1")

    def throw(node: Node) -> bool:
        name = "/".join(map(str, node.lineage))
        return random.Random(derive_seed("branch", actor.seed, actor.task.id, name)).random() < probability

    return throw
