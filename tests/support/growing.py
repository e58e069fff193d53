"""Trees grown in this process, without a run directory."""

from collections.abc import Iterable

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import World
from agentcli.exploration.budget import Allowance
from agentcli.exploration.registry import Explore
from agentcli.policies.protocol import Policy
from agentcli.records.settings import Settings
from agentcli.records.types import Task, Tree
from agentcli.stages.backend import LocalSampler, TreeJob, grow


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
