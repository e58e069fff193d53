"""SPARK: M roots that branch where the policy says <explore> (section 2.2).

The frontier of Algorithm 1 has every unfinished trajectory, in a fixed order. In each
round all of them act. Then, in that order, each <explore> step gets its continuations:
b_eff = min(B, N - N_current + 1) (eq. 5-7). N_current counts every leaf, finished or
not, so the tree never has more than N. Once it has N, trajectories no longer wait for
each other. `--branch fixed:P` replaces the trigger by a coin (Table 4's ablation).
`--branch entropy` branches after steps that were more surprising than the trajectory's
first (not in SPARK).

`--fork` says of what the b_eff are siblings. after: of the next step, in h_(t+1)
(eq. 6). at: of the <explore> step itself, in h_t: eq. 8 and section 2.3 argue for B
decisions at a pivotal step, of which one suffices.
"""

import asyncio
from typing import Literal

import msgspec

from agentcli.errors import UsageError
from agentcli.exploration.actor import Actor
from agentcli.exploration.chain import follow
from agentcli.exploration.nodes import Node
from agentcli.exploration.settings import RootedRollout
from agentcli.exploration.triggers import (
    BY_ENTROPY,
    EntropySettings,
    Trigger,
    probability_of,
    trigger,
)
from agentcli.records.section import Count
from agentcli.records.siblings import was_sampled
from agentcli.records.types import Tree

Fork = Literal["after", "at"]
"""Which state is branched: the one after the step that triggers, or the one before."""


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
    eq. 28); arpo forks the state before it, as `fork: at` does.
    """
    fork: Fork = "after"
    """Which step gets siblings. after: the one that follows the <explore> step (SPARK
    eq. 6). at: the <explore> step itself, which is sampled again in its own state
    (SPARK eq. 8, section 2.3); of siblings only the first one decides, and the initial
    state has its M roots instead.
    """
    entropy: EntropySettings = msgspec.field(default_factory=EntropySettings)

    @property
    def needs_chance(self) -> str:
        return BY_ENTROPY if self.branch == "entropy" else ""

    def check(self) -> None:
        """Raises UsageError for too many roots, an unknown trigger or an unused one."""
        super().check()
        probability_of(self.branch)
        if self.branch != "entropy" and self.entropy != EntropySettings():
            raise UsageError(
                f"rollout.entropy: has no effect where rollout.branch is {self.branch}; "
                "use --branch entropy"
            )


async def explore(actor: Actor, settings: SparkRollout) -> Tree:
    """Grows a forest of `roots` trees with at most `leaves` leaves.

    Raises UsageError when roots exceed leaves, `branch` is not a known trigger, or it
    needs log-probabilities and there are none.
    """
    triggered = trigger(settings.branch, settings.entropy, actor)
    settings.check()
    actor.roots = settings.roots
    root = await actor.start()
    await branch_out(actor, settings, root, triggered, settings.fork)
    return actor.tree("spark")


async def branch_out(
    actor: Actor,
    settings: BranchingRollout,
    root: Node,
    triggered: Trigger,
    fork: Fork,
) -> int:
    """Grows `roots` trajectories that branch where `triggered` fires.

    Returns the number of leaves that were begun.
    """
    # Stage 1: M roots at the state h_0 (eq. 3).
    frontier = [(root, index) for index in range(settings.roots)]
    current = settings.roots
    while frontier and current < settings.leaves:
        # Eq. 6: every continuation of every trajectory is sampled at the same time.
        acts = [actor.act(state, index) for state, index in frontier]
        nodes = await asyncio.gather(*acts)
        # The next acts: on from each new state, and once more from a branched one.
        following: list[tuple[Node, int]] = []
        for (state, index), node in zip(frontier, nodes, strict=True):
            if not node.finished:
                following.append((node, 0))
            place = node
            can_branch = not node.finished
            if fork == "at":
                place = state
                # h_0 has its M roots already (eq. 3).
                can_branch = state is not root and index == 0
            if _fires(triggered, node, fork) and can_branch:
                # Eq. 4-5: b = B where the response says <explore>, else 1; eq. 7 bounds
                # it. Leaves that have ended still count.
                more = min(settings.branching - 1, settings.leaves - current)
                # One of the b_eff goes on in any case: only the others are new leaves.
                following += [(place, 1 + number) for number in range(more)]
                current += more
        frontier = following
    # No more branching: trajectories need not wait for each other.
    await asyncio.gather(*(follow(actor, state, index) for state, index in frontier))
    return current


def _fires(triggered: Trigger, node: Node, fork: Fork) -> bool:
    """Whether the trigger fires for the step that led to `node`.

    At the step itself, it is asked about every response, also a last one: the first one
    of a trajectory sets H_initial (CARL eq. 28).
    """
    if fork == "after":
        return not node.finished and triggered(node)
    # A response that the policy failed to give has no entropy.
    return node.step is not None and was_sampled(node.step) and triggered(node)
