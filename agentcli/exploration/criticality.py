"""criticality: draw every action of a trajectory again, greedily afterwards (CARL eq. 5).

It trains nothing. `agentcli show RUN --criticality` measures from such trees how much
each action decides: the spread of the reward where chance is left to that action alone.

In every state of a trajectory `draws` further responses are sampled; what follows each
is sampled at temperature 0. The trajectory's own action is none of the draws, because
what followed it was sampled.
"""

import asyncio
from typing import Annotated, ClassVar

from msgspec import Meta

from agentcli.exploration.actor import Actor
from agentcli.exploration.chain import follow, follow_all
from agentcli.exploration.nodes import Node
from agentcli.records.settings import RolloutSettings
from agentcli.records.types import Tree


class CriticalityRollout(RolloutSettings, kw_only=True):
    """Settings of criticality."""

    redraws: ClassVar[bool] = False
    bounded: ClassVar[bool] = False

    draws: Annotated[int, Meta(ge=2, le=1_000_000)] = 8
    """The number of responses drawn in every state of a trajectory. CARL does not say
    its own.
    """

    def most(self, steps: int) -> tuple[int, int]:
        """The most leaves and responses: draws in the root and in later states."""
        leaves, responses = super().most(steps)
        states = 1 + leaves * (steps - 1)
        # From the root `steps` responses, from the last state one.
        drawn = steps + leaves * (steps * (steps - 1) // 2)
        return leaves + self.draws * states, responses + self.draws * drawn

    @property
    def needs_chance(self) -> str:
        return "draws every action again, and greedy draws are all the same"


async def explore(actor: Actor, settings: CriticalityRollout) -> Tree:
    """Grows `leaves` trajectories, and from each of their states `draws` greedy ones."""
    actor.roots = settings.leaves
    root = await actor.start()
    trajectories = await follow_all(actor, root, range(settings.leaves))
    states = [root]
    for trajectory in trajectories:
        # The root is listed once, and nothing can be drawn after the last step.
        states += trajectory[1:-1]
    draws = []
    for state in states:
        # Indices that are taken: all trajectories leave the root, one any other state.
        own = settings.leaves if state is root else 1
        draws += [_draw(actor, state, own + n) for n in range(settings.draws)]
    await asyncio.gather(*draws)
    return actor.tree("criticality")


async def _draw(actor: Actor, state: Node, index: int) -> None:
    """tau_(s, a'): another action in a state, and greedy ones to the end (eq. 5)."""
    node = await actor.act(state, index)
    if not node.finished:
        await follow(actor, node, greedy=True)
