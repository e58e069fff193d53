"""What the tests of the engine pool share: pools of the toy world, and trees grown in them at random."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

from agentcli.environments.engines import pool as pool_module
from agentcli.environments.engines.pool import EnginePool, State
from agentcli.environments.protocol import Observation
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from toy_world import ToyWorld

ACTIONS = ("go east", "go west", "look", "take key", "sing")


def toy(processes: int = 1, deadline: float = 60.0, **options: Any) -> EnvironmentSettings:
    return EnvironmentSettings(
        name="toy_world:ToyWorld", processes=processes, deadline_seconds=deadline, options=options
    )


def tasks_of(settings: EnvironmentSettings) -> list[Task]:
    return ToyWorld(settings).tasks("train")


def with_pool(
    settings: EnvironmentSettings, body: Callable[[EnginePool], Awaitable[Any]], engines_per_worker: int = 128
) -> Any:
    async def main() -> Any:
        async with EnginePool(settings) as pool:
            return await body(pool)

    with patch.object(pool_module, "ENGINES_PER_WORKER", engines_per_worker):
        return asyncio.run(main())


async def play(pool: EnginePool, state: State, *actions: str) -> State:
    for action in actions:
        state = await pool.step(state, action)
    return state


def direct(settings: EnvironmentSettings, task: Task, actions: tuple[str, ...]) -> Observation:
    """What an engine in this process says after `actions`."""
    engine = ToyWorld(settings).engine()
    seen = engine.start(task).observation
    for action in actions:
        seen = engine.step(action)
    return seen


async def grow(pool: EnginePool, task: Task, seed: int, size: int, actions: tuple[str, ...] = ACTIONS) -> list[State]:
    """A random tree: each new state continues any earlier one that has not ended, by any of `actions`, or of the admissible
    ones where there are none."""
    rng = random.Random(seed)
    states = [await pool.start(task)]
    for _ in range(size):
        parent = rng.choice([state for state in states if state.observation.end is None])
        states.append(await pool.step(parent, rng.choice(actions or parent.observation.actions)))
    return states
