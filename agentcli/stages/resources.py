"""What a sampling stage holds open: the world, its engine pool and the policy; and the loop that grows trees with them."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice

from agentcli.environments.pool import EnginePool
from agentcli.environments.protocol import World
from agentcli.environments.registry import make_world
from agentcli.exploration.actor import Actor
from agentcli.exploration.budget import Allowance
from agentcli.exploration.registry import Explore
from agentcli.policies.protocol import Policy
from agentcli.policies.registry import make_policy
from agentcli.records.settings import Settings
from agentcli.records.types import Task, Tree, TreeSeconds
from agentcli.stages.threads import use_threads


@dataclass
class Engines:
    """A world with live engines; may serve many policies one after another (the iterations of `run`)."""

    world: World
    pool: EnginePool


@asynccontextmanager
async def open_engines(settings: Settings) -> AsyncIterator[Engines]:
    """Start the engine pool; no engine process outlives the block."""
    world = make_world(settings.environment)
    async with EnginePool(settings.environment) as pool:
        yield Engines(world, pool)


@asynccontextmanager
async def open_policy(settings: Settings, engines: Engines, model: str | None) -> AsyncIterator[Policy]:
    """Load the policy; one with a model computes on `threads` torch threads."""
    if model is not None:
        use_threads(settings.threads)
    policy = make_policy(settings, engines.world, engines.pool, model)
    try:
        yield policy
    finally:
        await policy.close()


class Stopwatch:
    """Where a sampling stage's time went, in seconds since construction; made and read in the event loop's thread.

    `sampling` is wall time, `policy` time inside the model, `environment` time inside the engines (these may overlap).
    `orchestration` is all the rest: wall time in neither, or this thread's own CPU time (prompts, parsing, tokenising,
    messages, records; for a policy without a model its thinking too) where that is more.
    """

    def __init__(self, engines: Engines, policy: Policy) -> None:
        self._engines, self._policy = engines, policy
        self._start = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        return time.perf_counter(), time.thread_time(), self._policy.seconds, self._engines.pool.seconds

    def seconds(self) -> dict[str, float]:
        """sampling, policy, environment, orchestration."""
        wall, thread, policy, environment = (now - then for now, then in zip(self._now(), self._start, strict=True))
        rest = max(thread, wall - policy - environment)
        return {"sampling": wall, "policy": policy, "environment": environment, "orchestration": rest}


async def grow(
    explore: Explore,
    engines: Engines,
    policy: Policy,
    settings: Settings,
    tasks: list[Task],
    seed: int,
    allowance: Allowance | None = None,
    timed: dict[str, TreeSeconds] | None = None,
) -> AsyncGenerator[Tree, None]:
    """Grow one tree per task, `rollout.concurrency` at a time, and yield them in the order of `tasks`.

    A slow tree holds up no other: later trees wait finished, at most eight times the concurrency of them. When a tree
    raises (a wrong setting, a fault of ours), the others are cancelled and the error goes on.

    With an `allowance` it ends before the first tree that is not paid for; the few that were begun beyond it because
    those before them cost more than expected are thrown away. `timed` receives, by task id, how long each tree took.
    """
    allowance = allowance or Allowance(None, tasks, settings)
    limit = asyncio.Semaphore(settings.rollout.concurrency)

    async def one(task: Task) -> Tree | None:
        async with limit:
            if not await allowance.admits(task):
                return None
            begun, actor = time.perf_counter(), Actor(task, engines.pool, policy, engines.world, settings, seed)
            tree = await explore(actor, settings)
            if timed is not None:
                waited = {name: round(seconds, 4) for name, seconds in actor.seconds.items()}
                wall = round(time.perf_counter() - begun, 4)
                timed[task.id] = TreeSeconds(task=task.id, **waited, wall=wall)  # type: ignore[arg-type]
            await engines.pool.release(task.id)
            await allowance.charge(tree)
            return tree

    waiting = iter(tasks)
    running = deque(asyncio.create_task(one(task)) for task in islice(waiting, 8 * settings.rollout.concurrency))
    try:
        while running:
            tree = await running[0]
            if tree is None or not allowance.pays(tree.task):
                return
            yield tree
            running.popleft()
            running.extend(asyncio.create_task(one(task)) for task in islice(waiting, 1))
    finally:
        for job in running:
            job.cancel()
        await asyncio.gather(*running, return_exceptions=True)
