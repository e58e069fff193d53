"""Draws a response again because a sibling took its action (rollout.distinct = N).

A child at place i of a node draws y ~ pi. While y names an action that a sibling at a
lower place ended up with, it is thrown away and drawn again, at most N times. With S
the actions of those siblings and q = pi(S), the response that is kept comes from

    P(y) = pi(y) (1 + q + ... + q^N)    where y's action is new
    P(y) = pi(y) q^N                    where it is in S: every draw repeated

The stored log-probabilities, which the trainer takes for the old ones, stay those of pi
at the response that was kept. The ratio of 002 eq. 10 compares policies, and P is no
policy. So the siblings of a node are not independent draws of pi: their mean outcome is
no unbiased estimate of the state's value.

Every first draw is made at once; a child then waits for the siblings before it, and for
nothing else. So one seed is one tree at any concurrency.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agentcli.exploration.nodes import Lineage

T = TypeVar("T")
Settled = dict[Lineage, asyncio.Future[str]]
"""The action that each child ends up with, "" without one."""


class Draws:
    """The draws of one tree.

    `most` is how often a child is drawn again. With 0 no child waits for another.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._children: dict[Lineage, Settled] = defaultdict(dict)
        """By node, its children that have begun."""

    async def draw(
        self,
        lineage: Lineage,
        sample: Callable[[int], Awaitable[T]],
        action: Callable[[T], str],
    ) -> tuple[T, int]:
        """The response of the child `lineage`, and how many were thrown away before it.

        `sample` draws by the number of the try, from 0. `action` names what a response
        does; "" (malformed, or no response) is never a repetition. Raises what `sample`
        raises.
        """
        if not self._most:
            return await sample(0), 0
        siblings = self._children[lineage[:-1]]
        before = [siblings[sibling] for sibling in siblings if sibling < lineage]
        settled: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        siblings[lineage] = settled
        final_action = ""
        try:
            drawn = await sample(0)
            thrown_away = 0
            if before:
                await asyncio.wait(before)
            taken = {sibling.result() for sibling in before} - {""}
            while action(drawn) in taken and thrown_away < self._most:
                thrown_away += 1
                drawn = await sample(thrown_away)
            final_action = action(drawn)
            return drawn, thrown_away
        finally:
            # Also where the draw failed or was cancelled: a sibling may wait for it.
            settled.set_result(final_action)
