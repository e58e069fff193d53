"""Policies without a model: a plan from the true state, and a uniform draw.

They act in every copy that may act, and answer in the form that the request names, so
that stages treat them like a model. Token ids stay empty.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from agentcli.environments.protocol import Context
from agentcli.errors import EngineError, UsageError
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.protocol import Answer
from agentcli.records.files import derive_seed

Choose = Callable[[Context, Any, int], Awaitable[str]]
"""(one copy's past, its state, seed) -> action."""


class PlanSource(Protocol):
    """The part of the engine pool that the expert asks."""

    async def plan(self, state: Any) -> list[str]:
        """Actions that win from `state`."""
        ...


class Expert:
    """Follows a plan computed from the true state; wins where the world has a planner."""

    def __init__(self, pool: PlanSource) -> None:
        self.seconds = 0.0
        self._pool = pool

    async def respond(self, request: Request) -> Reply:
        """Raises EngineError when there is no plan."""
        return await act_everywhere(
            request, "think", "next step of the plan", self._next
        )

    async def _next(self, context: Context, state: Any, seed: int) -> str:
        plan = await self._pool.plan(state)
        if not plan:
            raise EngineError(
                f"task {context.task.id}: the planner knows nothing left to do"
            )
        return plan[0]

    async def close(self) -> None:
        """There is nothing to let go of."""


class Uniform:
    """Draws one of the admissible actions by the request's seed."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def respond(self, request: Request) -> Reply:
        """Raises UsageError where the world lists no admissible actions."""
        return await act_everywhere(request, "explore", "try anything", self._draw)

    async def _draw(self, context: Context, state: Any, seed: int) -> str:
        if not context.admissible:
            raise UsageError(
                f"policy.kind random: {context.task.world} lists no admissible "
                "actions; choose another --policy"
            )
        return random.Random(seed).choice(context.admissible)

    async def close(self) -> None:
        """There is nothing to let go of."""


async def act_everywhere(
    request: Request,
    tag: str,
    sentence: str,
    choose: Choose,
) -> Reply:
    """The reply that acts in every copy that may act, as `choose` says.

    Each of several copies has its own seed.
    """
    moment = request.moment
    actions = {}
    for number in moment.open:
        context = moment.copies[number - 1]
        state = request.states[number - 1]
        seed = derive_seed(request.seed, number) if moment.numbered else request.seed
        actions[number] = await choose(context, state, seed)
    return Reply(text=request.form.write(Answer(tag, sentence, actions)))
