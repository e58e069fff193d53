"""DPEPO: every response acts in up to K copies of the environment (section 3.1).

N trajectories of one task form the group (Algorithm 1, rollout stage). In each step of
a trajectory the policy selects copies E'_t and an action for each of them. All actions
are executed at the same time, and the history contains the observations of all copies.
The trajectory succeeds as soon as any copy does. So this is chain with K copies.
Step.moves records what happened in each; the reward scheme is in the credit method.
"""

from typing import ClassVar, Literal

from agentcli.exploration.actor import Actor
from agentcli.exploration.chain import follow_all
from agentcli.records.section import Count
from agentcli.records.settings import RolloutSettings
from agentcli.records.types import Tree


class DpepoRollout(RolloutSettings, kw_only=True):
    """Settings of dpepo."""

    alone: ClassVar[str] = "dpepo"
    numbered: ClassVar[bool] = True

    copies: Count = 4
    """K: the number of copies of the environment that a response may act in. DPEPO
    trains with 4; the scripts of its release evaluate with 5.
    """
    beyond: Literal["malformed", "failure"] = "malformed"
    """What happens when a response names a copy above K. malformed: nothing is done.
    failure: the task fails, and the full prompt warns of this (DPEPO 5.3, its
    exploration-limiting prompt). DPEPO fails such trials where it varies K (Figure 4).
    """

    @property
    def moves_per_step(self) -> int:
        """A response may act in every copy."""
        return self.copies


async def explore(actor: Actor, settings: DpepoRollout) -> Tree:
    """Grows `leaves` trajectories from the root, each in `copies` copies."""
    limited = settings.beyond == "failure"
    # Algorithm 1, line 5. The copies are forks of one initial state, so all begin
    # alike.
    root = await actor.start(settings.copies, limited)
    # Lines 6-9: t counts responses, however many copies one acts in.
    await follow_all(actor, root, range(settings.leaves))
    return actor.tree("dpepo")
