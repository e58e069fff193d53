"""SPARK: M roots that branch where the policy says <explore> (section 2.2).

The frontier of Algorithm 1 has every unfinished trajectory, in a fixed order. In each
round all of them act. Then, in that order, each new state is given its number of
continuations: b_eff = min(B, N - N_current + 1) after an <explore> step (eq. 5-7), else
one. N_current counts every leaf, finished or not, so the tree never has more than N.
Once it has N, trajectories no longer wait for each other. `--branch fixed:P` replaces
the trigger by a coin (Table 4's ablation). `--branch entropy` branches after steps that
were more surprising than the trajectory's first (not in SPARK).
"""

import asyncio

import msgspec

from agentcli.exploration.actor import Actor
from agentcli.exploration.chain import follow
from agentcli.exploration.roots import RootedRollout
from agentcli.exploration.triggers import EntropySettings, probability_of, trigger
from agentcli.records.section import Count
from agentcli.records.types import Tree


class BranchingRollout(RootedRollout, kw_only=True):
    """Settings of methods that branch where a trigger fires."""

    branching: Count = 2
    """B: the number of continuations of a state that is branched, including the one it
    would have anyway.
    """


class SparkRollout(BranchingRollout, kw_only=True):
    """Settings of spark."""

    branch: str = "explore"
    """Where to branch. explore: where the policy says <explore>. fixed:P: with
    probability P after any step. entropy: after a step whose entropy rose (CARL
    eq. 28); arpo forks the state before it.
    """
    entropy: EntropySettings = msgspec.field(default_factory=EntropySettings)

    def check(self) -> None:
        """Raises UsageError for too many roots and for an unknown trigger."""
        super().check()
        probability_of(self.branch)


async def explore(actor: Actor, settings: SparkRollout) -> Tree:
    """Grows a forest of `roots` trees with at most `leaves` leaves.

    Raises UsageError when roots exceed leaves, `branch` is not a known trigger, or it
    needs log-probabilities and there are none.
    """
    triggered = trigger(settings.branch, settings.entropy, actor)
    settings.check()
    actor.roots = settings.roots
    root = await actor.start()
    # Stage 1: M roots at the state h_0 (eq. 3).
    frontier = [(root, index) for index in range(settings.roots)]
    current = settings.roots
    while frontier and current < settings.leaves:
        # Eq. 6: every continuation of every trajectory is sampled at the same time.
        acts = [actor.act(node, index) for node, index in frontier]
        nodes = await asyncio.gather(*acts)
        frontier = []
        for node in nodes:
            if node.finished:
                continue
            width = 1
            # Eq. 4-5: b = B where the response that led here says <explore>, else 1.
            if triggered(node):
                width = min(settings.branching, settings.leaves - current + 1)  # eq. 7
            # One active leaf becomes `width`; leaves that have ended still count.
            current += width - 1
            frontier += [(node, index) for index in range(width)]
    # No more branching: trajectories need not wait for each other.
    await asyncio.gather(*(follow(actor, node, index) for node, index in frontier))
    return actor.tree("spark")
