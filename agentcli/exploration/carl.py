"""CARL: fork the state with the lowest action density (section 5, Algorithm 1).

N0 trajectories start from the initial state. Every state in which an action was sampled
is a candidate: n(s) is the number of its children, H(s) the mean of their
-log pi(Y|s) / |Y| (eq. 7-8). The state with the largest H/n (ties: the oldest) is
forked, and the new trajectory is followed to its end. It updates that state and adds
its own states as candidates; then the next state is chosen. `rollout.leaves` bounds the
tree as for every method: N0 = `roots`, and the paper's N forks are leaves - roots.
`criterion: random` draws the state at random instead (Table 4).

Each choice needs the entropies of all earlier trajectories. So a tree grows one fork at
a time, as in the algorithm, and no choice depends on which response came first. Batches
are filled by the many trees that grow at the same time (`rollout.concurrency`).
"""

import math
import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from agentcli.exploration.actor import Actor
from agentcli.exploration.chain import follow, follow_all
from agentcli.exploration.nodes import Lineage, Node
from agentcli.exploration.settings import RootedRollout
from agentcli.exploration.triggers import BY_ENTROPY, surprise
from agentcli.records.files import derive_seed
from agentcli.records.siblings import was_sampled
from agentcli.records.types import Tree


class CarlRollout(RootedRollout, kw_only=True):
    """Settings of carl."""

    criterion: Literal["entropy", "random"] = "entropy"
    """Which state is forked. entropy: the one with the most entropy per action sampled
    there. random: one drawn at random (CARL Table 4).
    """

    @property
    def needs_chance(self) -> str:
        return BY_ENTROPY if self.criterion == "entropy" else ""


async def explore(actor: Actor, settings: CarlRollout) -> Tree:
    """Grows a tree with `leaves` leaves, or fewer if no action could be sampled.

    Raises UsageError when roots exceed leaves, and for a policy that gives no
    log-probabilities.
    """
    await fork_progressively(actor, settings, settings.criterion)
    return actor.tree("carl")


@dataclass
class Candidate:
    """A state in which actions were sampled."""

    node: Node
    children: int = 0
    """Includes children where the policy failed to answer."""
    surprises: list[float] = field(default_factory=list)
    """-log pi(Y|s) / |Y| of every response that is not empty; zeros where the criterion
    is random.
    """

    @property
    def sparseness(self) -> float:
        """H/n, the inverse of the action density (eq. 12)."""
        entropy = math.fsum(self.surprises) / len(self.surprises)
        # Failed children count too, else a state where requests fail would stay first.
        return entropy / self.children


async def fork_progressively(
    actor: Actor,
    settings: RootedRollout,
    criterion: str,
) -> None:
    """Grows `roots` trajectories from scratch, then forks up to `leaves` leaves."""
    buffer: dict[Lineage, Candidate] = {}  # S of Algorithm 1, oldest first

    def record(trajectory: list[Node]) -> None:
        for state, child in pairwise(trajectory):
            candidate = buffer.setdefault(state.lineage, Candidate(state))
            # n of lines 8, 18 and 21.
            candidate.children += 1
            step = child.step
            # A child where the policy failed to answer has no entropy.
            if step is None or not was_sampled(step):
                continue
            entropy: float | None = 0.0
            if criterion == "entropy":
                entropy = surprise(step, "--criterion random")
            # h of lines 7 and 16. Line 18 keeps a running mean; `sparseness` sums all.
            if entropy is not None:
                candidate.surprises.append(entropy)

    settings.check()
    actor.roots = settings.roots
    root = await actor.start()
    # Algorithm 1, lines 4-10.
    for trajectory in await follow_all(actor, root, range(settings.roots)):
        record(trajectory)
    # Lines 11-24.
    # The paper's N.
    for turn in range(settings.leaves - settings.roots):
        # H is a mean over responses, so it needs one.
        candidates = [candidate for candidate in buffer.values() if candidate.surprises]
        # The policy never answered, or only in empty texts: no state has an entropy.
        if not candidates:
            return
        if criterion == "entropy":
            # Line 12. `max` takes the first of equals: the oldest, by the order of S.
            chosen = max(candidates, key=lambda candidate: candidate.sparseness)
        else:
            # Seeded by the turn: what other trees do meanwhile does not change the
            # draw.
            seed = derive_seed("fork", actor.seed, actor.task.id, turn)
            chosen = random.Random(seed).choice(candidates)
        # Lines 13-23. The n children have the indices 0 to n - 1, so the next one is n.
        record(await follow(actor, chosen.node, chosen.children))
