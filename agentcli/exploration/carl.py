"""CARL: fork, one trajectory at a time, the state with the lowest action density (003
section 5, Algorithm 1).

N0 trajectories start from the initial state. Every state an action was sampled in is a
candidate: n(s) is how many were, H(s) the mean of their -log pi(Y|s) / |Y| (eq. 7-8).
The state with the largest H/n, the oldest where several have it, is continued to the
end of a trajectory; that updates it and adds the new states; and again. Finished states
have no action and are no candidates. `rollout.leaves` bounds the tree as it does for
every method: N0 = `roots`, and the paper's N forks are leaves - roots. `criterion:
random` draws the state instead (Table 4).

Each choice needs the entropies of all trajectories before it, so a tree forks one
trajectory at a time, as the algorithm does: no choice depends on which of several came
back first. Batches are filled by the many trees in flight (`rollout.concurrency`).
"""

import asyncio
import math
import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from agentcli.exploration.actor import Actor
from agentcli.exploration.budget import RootedRollout
from agentcli.exploration.chain import follow
from agentcli.exploration.nodes import Lineage, Node
from agentcli.exploration.triggers import surprise
from agentcli.records.files import derive_seed
from agentcli.records.siblings import was_sampled
from agentcli.records.types import Tree

INSTEAD = "--criterion random"


class CarlRollout(RootedRollout, kw_only=True):
    """Settings of carl."""

    criterion: Literal["entropy", "random"] = "entropy"
    """Which state is forked: the one with the most entropy per action sampled there, or
    one drawn at random (003 Table 4).
    """


async def explore(actor: Actor, settings: CarlRollout) -> Tree:
    """A tree with `leaves` leaves; fewer only where no action could be sampled at all.

    Raises UsageError when roots exceed leaves, and for a policy that gives no
    log-probabilities.
    """
    await fork_progressively(actor, settings, settings.criterion)
    return actor.tree("carl")


@dataclass
class Candidate:
    """A state that actions were sampled in."""

    node: Node
    children: int = 0
    surprises: list[float] = field(default_factory=list)
    """-log pi(Y|s) / |Y| of every answer; children that the policy failed to answer
    have none.
    """

    @property
    def sparseness(self) -> float:
        """H/n, the inverse of the action density (eq. 12)."""
        return math.fsum(self.surprises) / len(self.surprises) / self.children


async def fork_progressively(
    actor: Actor, settings: RootedRollout, criterion: str
) -> None:
    """Algorithm 1: `roots` trajectories from scratch, then one fork after another until
    there are `leaves`.
    """
    buffer: dict[Lineage, Candidate] = {}  # in order of creation

    def record(trajectory: list[Node]) -> None:
        for state, reached in pairwise(trajectory):
            candidate = buffer.setdefault(state.lineage, Candidate(state))
            candidate.children += 1
            if reached.step is not None and was_sampled(reached.step):
                candidate.surprises.append(
                    surprise(reached.step, INSTEAD) if criterion == "entropy" else 0.0
                )

    settings.check()
    actor.roots = settings.roots
    root = await actor.start()
    for trajectory in await asyncio.gather(
        *(follow(actor, root, index) for index in range(settings.roots))
    ):
        record(trajectory)
    for turn in range(settings.leaves - settings.roots):
        candidates = [candidate for candidate in buffer.values() if candidate.surprises]
        if not candidates:
            return
        if criterion == "entropy":
            chosen = max(candidates, key=lambda candidate: candidate.sparseness)
        else:
            chosen = random.Random(
                derive_seed("fork", actor.seed, actor.task.id, turn)
            ).choice(candidates)
        record(await follow(actor, chosen.node, chosen.children))
