"""DPEPO: every response acts in up to K copies of the environment (004 section 3.1).

N trajectories of one task are the group (Algorithm 1, rollout stage). In each step of
one the policy selects copies E'_t and an action for each. All are executed at the same
time, and the observations of all copies are its history. The trajectory has succeeded
as soon as any copy has. So it is chain with K copies. Step.moves holds what happened in
each; the reward scheme is the credit method's.
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
    """K: copies of the environment that one response may act in; 004 evaluates with 5.
    """
    beyond: Literal["malformed", "failure"] = "malformed"
    """A response that names a copy above K. malformed: nothing is done. failure: the
    task has failed, and the full prompt says so (004 5.3, its exploration-limiting
    prompt). 004 fails such trials where it varies K (Figure 4).
    """

    @property
    def moves_per_step(self) -> int:
        """A response may act in every copy."""
        return self.copies


async def explore(actor: Actor, settings: DpepoRollout) -> Tree:
    """Grows `leaves` trajectories from the root, each in `copies` copies."""
    limited = settings.beyond == "failure"
    root = await actor.start(settings.copies, limited)
    await follow_all(actor, root, range(settings.leaves))
    return actor.tree("dpepo")
