"""Policies without a model: a plan from the true state, the world's searching expert, and a uniform draw.

They answer in the format models are asked for, so that every stage treats them alike; token ids stay empty.
"""

import random
import time
from typing import Any, Protocol

import msgspec

from agentcli.environments.protocol import FINISHED, World, tutor_of
from agentcli.errors import EngineError, UsageError
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.parse import format_response


class Planner(Protocol):
    """What the expert needs of the engine pool."""

    async def plan(self, state: Any) -> list[str]:
        """Actions that win from `state`."""
        ...


class Expert:
    """Follows a plan computed from the true state; wins wherever the world has a planner."""

    def __init__(self, pool: Planner) -> None:
        self.seconds = 0.0
        self._pool = pool

    async def respond(self, request: Request) -> Reply:
        """Raises EngineError when there is no plan."""
        plan = await self._pool.plan(request.state)
        if not plan:
            raise EngineError(f"task {request.context.task.id}: the planner knows nothing left to do")
        return Reply(text=format_response("think", "next step of the plan", plan[0]))

    async def close(self) -> None:
        """Nothing to let go of."""


class Search:
    """The world's searching expert, without bad habits: it knows what the agent has seen, and no more.

    Raises UsageError for a world without one.
    """

    def __init__(self, world: World) -> None:
        self.seconds = 0.0
        self._tutor = tutor_of(world, "--policy", "search")
        self._sound = self._tutor.habits()

    async def respond(self, request: Request) -> Reply:
        """The next move."""
        return self.respond_with(request, self._sound)

    def respond_with(self, request: Request, habits: msgspec.Struct) -> Reply:
        """The same with `habits`."""
        started = time.perf_counter()
        tag, sentence, action = self._tutor.next(request.context, request.episode_seed, habits)
        self.seconds += time.perf_counter() - started
        past = request.context.actions
        idle = "finished" if sentence == FINISHED and past and past[-1] == action else None
        return Reply(text=format_response(tag, sentence, action), mask=idle)

    async def close(self) -> None:
        """Nothing to let go of."""


class Uniform:
    """Draws one of the admissible actions by the request's seed."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def respond(self, request: Request) -> Reply:
        """Raises UsageError where the world lists no admissible actions."""
        if not request.context.admissible:
            raise UsageError(
                f"policy.kind random: {request.context.task.world} lists no admissible actions; choose another --policy"
            )
        action = random.Random(request.seed).choice(request.context.admissible)
        return Reply(text=format_response("explore", "try anything", action))

    async def close(self) -> None:
        """Nothing to let go of."""
