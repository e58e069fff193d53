"""ARPO: samples more responses where a response is surprising (CARL App. C.5).

This is ARPO as CARL describes and compares it. `roots` trajectories start from the
initial state. H_t is the entropy of the response to the result of tool call t. Where
P = alpha + beta * (H_t - H_initial) > tau (eq. 28), the state in which this response
was sampled gets Z = B - 1 more responses, as long as the budget of N leaves lasts. Only
the first response in a state decides. The initial state is never branched, because no
call was made before it. When all trajectories have ended, the rest of the budget is
spent on new trajectories from the initial state.
"""

import asyncio

import msgspec

from agentcli.exploration.actor import Actor
from agentcli.exploration.chain import follow, follow_all
from agentcli.exploration.nodes import Node
from agentcli.exploration.spark import BranchingRollout
from agentcli.exploration.triggers import EntropySettings, rising_entropy
from agentcli.records.siblings import was_sampled
from agentcli.records.types import Tree


class ArpoRollout(BranchingRollout, kw_only=True):
    """Settings of arpo."""

    entropy: EntropySettings = msgspec.field(default_factory=EntropySettings)


async def explore(actor: Actor, settings: ArpoRollout) -> Tree:
    """Grows a tree with exactly `leaves` leaves.

    Raises UsageError when roots exceed leaves, and for a policy that gives no
    log-probabilities.
    """
    settings.check()
    actor.roots = settings.roots
    # H_initial is kept for each root: all forks of a trajectory share its first step.
    rises = rising_entropy(settings.entropy, "--method spark")
    root = await actor.start()
    frontier = [(root, index) for index in range(settings.roots)]
    leaves = settings.roots
    while frontier and leaves < settings.leaves:
        acts = [actor.act(state, index) for state, index in frontier]
        nodes = await asyncio.gather(*acts)
        # The next acts: on from each new state, and again from a surprising state.
        following: list[tuple[Node, int]] = []
        for (state, index), node in zip(frontier, nodes, strict=True):
            if not node.finished:
                following.append((node, 0))
            # A response that the policy failed to give has no entropy.
            if node.step is None or not was_sampled(node.step):
                continue
            # Called for every response: the first one of a trajectory sets H_initial.
            surprising = rises(node)
            if surprising and state is not root and index == 0:
                # Z = B - 1. N is shared by all trajectories, first come in the fixed
                # order.
                more = min(settings.branching - 1, settings.leaves - leaves)
                following += [(state, 1 + number) for number in range(more)]
                leaves += more
        frontier = following
    # No more branching: trajectories need not wait for each other.
    await asyncio.gather(*(follow(actor, state, index) for state, index in frontier))
    # App. C.5: what the triggers left of N goes to new trajectories.
    left = settings.leaves - leaves
    await follow_all(actor, root, range(settings.roots, settings.roots + left))
    return actor.tree("arpo")
