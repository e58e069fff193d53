"""Trees grown in this process, without a run directory."""

import asyncio
from collections.abc import Callable, Iterable

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import World
from agentcli.environments.registry import make_world
from agentcli.exploration.budget import Allowance
from agentcli.exploration.registry import Explore
from agentcli.policies.protocol import Policy
from agentcli.policies.registry import make_policy
from agentcli.records.settings import Settings
from agentcli.records.types import Task, Tree
from agentcli.stages.backend import LocalSampler, TreeJob, grow
from agentcli.stages.panels import panel_for


async def grow_all(
    world: World,
    pool: EnginePool,
    policy: Policy,
    settings: Settings,
    tasks: Iterable[Task],
    seed: int,
    *,
    explore: Explore | None = None,
    allowance: Allowance | None = None,
) -> list[Tree]:
    """One tree per task, by the method of the settings unless `explore` is given."""
    sampler = LocalSampler(world, pool, policy, settings, explore)
    jobs = [TreeJob(task, seed) for task in tasks]
    return [grown.tree async for grown in grow(sampler, jobs, settings.rollout.concurrency, allowance)]


def grown(
    *runs: Settings, policy: Callable[[], Policy] | None = None, tasks: slice = slice(None), seed: int = 0
) -> list[list[Tree]]:
    """For each of `runs`, trees of the same tasks in the engines of the first, by its own policy unless one is given."""

    async def work() -> list[list[Tree]]:
        world, trees = make_world(runs[0].environment), []
        async with EnginePool(runs[0].environment) as pool:
            for run in runs:
                asked = policy() if policy else make_policy(run, world, pool, None)
                panel = panel_for(world, run.environment).tasks[tasks]
                trees.append(await grow_all(world, pool, asked, run, panel, seed))
        return trees

    return asyncio.run(work())
