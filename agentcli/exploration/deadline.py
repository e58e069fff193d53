"""The wall clock of one tree, where rollout.deadline_seconds sets one.

With a deadline, what a tree holds depends on how fast policy and engines were. The same
seed then no longer means the same bytes.
"""

import asyncio
from collections.abc import Awaitable, Callable

from agentcli.exploration.actor import Actor
from agentcli.records.settings import RolloutSettings
from agentcli.records.types import Tree

Explore = Callable[[Actor, RolloutSettings], Awaitable[Tree]]
"""An exploration method; its settings are of the class that it is annotated with."""


def within_deadline(explore: Explore) -> Explore:
    """Bounds `explore` by `deadline_seconds`; Actor.cut ends the tree."""

    async def bounded(actor: Actor, settings: RolloutSettings) -> Tree:
        try:
            async with asyncio.timeout(settings.deadline_seconds) as clock:
                return await explore(actor, settings)
        except TimeoutError:
            # A method may have deadlines of its own.
            if not clock.expired():
                raise
        why = (
            f"the tree was not finished within {settings.deadline_seconds:g} s "
            "(rollout.deadline_seconds)"
        )
        return actor.cut(settings.method, why, settings.minimum_leaves)

    return bounded
