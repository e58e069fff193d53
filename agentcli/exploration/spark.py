"""SPARK: M roots, branching where the policy says <explore>, under a budget of N leaves
(000 section 2.2, Algorithm 1).

The frontier holds every unfinished trajectory in a fixed order. In each round all of
them act; then, in that order, each decides how many continuations its new state gets:
b_eff = min(B, N - N_current + 1) after an <explore> step (eq. 5-7), else one. N_current
counts every leaf, finished or not, so the tree never has more than N; once it has N,
nobody waits for a round any longer. `--branch fixed:P` replaces the trigger by a coin
(Table 4's ablation), `--branch entropy` by a rise of entropy as in ARPO.
"""

import asyncio

import msgspec

from agentcli.exploration.actor import Actor
from agentcli.exploration.budget import RootedRollout
from agentcli.exploration.chain import follow
from agentcli.exploration.nodes import Node
from agentcli.exploration.triggers import (
    EntropySettings,
    Trigger,
    probability_of,
    trigger,
)
from agentcli.records.settings import Count
from agentcli.records.types import Tree


class BranchingRollout(RootedRollout, kw_only=True):
    """Settings of the methods that branch where something triggers it."""

    branching: Count = 2
    """B: continuations of a state that is branched, the one that would be there anyway
    included.
    """


class SparkRollout(BranchingRollout, kw_only=True):
    """Settings of spark."""

    branch: str = "explore"
    """Where to branch. explore: where the policy says <explore>. fixed:P: with
    probability P after any step. entropy: as arpo.
    """
    entropy: EntropySettings = msgspec.field(default_factory=EntropySettings)

    def check(self) -> None:
        """Raises UsageError for too many roots, and for a criterion that there is not."""
        super().check()
        probability_of(self.branch)


async def explore(actor: Actor, settings: SparkRollout) -> Tree:
    """A forest of `roots` trees (children of the root) with at most `leaves` leaves.

    Raises UsageError when roots exceed leaves, `branch` is no known criterion, or it
    needs log-probabilities and there are none.
    """
    await branch_out(actor, settings, trigger(settings.branch, settings.entropy, actor))
    return actor.tree("spark")


async def branch_out(
    actor: Actor, settings: BranchingRollout, triggered: Trigger
) -> tuple[Node, int]:
    """Grow `roots` trajectories to their ends, branching where it is triggered: the
    initial state and the number of leaves.
    """
    settings.check()
    current = actor.roots = settings.roots
    root = await actor.start()
    frontier = [(root, index) for index in range(current)]
    while frontier and current < settings.leaves:
        reached = await asyncio.gather(
            *(actor.act(node, index) for node, index in frontier)
        )
        frontier = []
        for node in reached:
            if node.finished:
                continue
            width = (
                min(settings.branching, settings.leaves - current + 1)
                if triggered(node)
                else 1
            )
            current += width - 1
            frontier += [(node, index) for index in range(width)]
    await asyncio.gather(*(follow(actor, node, index) for node, index in frontier))
    return root, current
