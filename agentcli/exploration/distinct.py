"""Redraws a response whose action a sibling already took (rollout.distinct = N).

Child i of a node draws y ~ pi. While y has the same action as the final response of an
earlier sibling, it is thrown away and drawn again, at most N times. Let S be the
actions of those siblings and q = pi(S). The response that is kept is distributed as

    P(y) = pi(y) (1 + q + ... + q^N)    if y's action is new
    P(y) = pi(y) q^N                    if it is in S: every draw was a repetition

The stored log-probabilities, which the trainer uses as the old ones, are those of pi
for the response that was kept: the ratio of RewardFlow eq. 10 compares policies, and P
is not a policy. The siblings of a node are then not independent draws from pi, so their
mean outcome is not an unbiased estimate of the state's value.

All first draws are made at once. After that, a child waits only for the siblings before
it. So a seed gives the same tree at any concurrency.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

from agentcli.exploration.nodes import Lineage, Response
from agentcli.records.siblings import joined

Settled = dict[Lineage, asyncio.Future[str]]
"""The final action of each child; "" if it has none."""


class Draws:
    """The draws of one tree.

    `most` is the most times a child is drawn again. With 0 no child waits for another.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._children: dict[Lineage, Settled] = defaultdict(dict)
        """The children that have begun, by node."""

    async def draw(
        self,
        lineage: Lineage,
        sample: Callable[[int], Awaitable[Response]],
    ) -> tuple[Response, int]:
        """The response of the child `lineage`, and how many were thrown away before it.

        `sample` draws a response, given the number of the try, from 0. A response
        without an action is never a repetition. Raises whatever `sample` raises.
        """
        if not self._most:
            return await sample(0), 0
        siblings = self._children[lineage[:-1]]
        before = [siblings[sibling] for sibling in siblings if sibling < lineage]
        settled: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        # Before the first await, so that every later sibling finds it to wait for.
        siblings[lineage] = settled
        final_action = ""
        try:
            drawn = await sample(0)
            thrown_away = 0
            if before:
                # Not gather: if this child is cancelled, it would cancel the
                # siblings' futures, too.
                await asyncio.wait(before)
            # S of the docstring. A malformed response takes no action that could be
            # repeated.
            taken = {sibling.result() for sibling in before} - {""}
            while _action(drawn) in taken and thrown_away < self._most:
                thrown_away += 1
                drawn = await sample(thrown_away)
            final_action = _action(drawn)
            return drawn, thrown_away
        finally:
            # Also if the draw failed or was cancelled: a sibling may be waiting for it.
            settled.set_result(final_action)


def _action(response: Response) -> str:
    return joined(response.answer.actions)
