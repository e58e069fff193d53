"""Where trees grow: in this process, or in the workers of a Ray cluster."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Protocol

from agentcli.environments.engines.pool import EnginePool
from agentcli.records.settings import Settings
from agentcli.reports.standing import Progress
from agentcli.stages.harvest import Grower
from agentcli.stages.local_backend import LocalBackend
from agentcli.stages.sampling import SamplingPlan


class Workplace(Protocol):
    """Engines and models that a loop keeps across its stages."""

    def grower(self, plan: SamplingPlan) -> AbstractAsyncContextManager[Grower]:
        """A grower for one stage, with the models that its plan names."""


@asynccontextmanager
async def open_workplace(
    settings: Settings, progress: Progress, keeps: bool = True
) -> AsyncIterator[Workplace]:
    """The workplace that `settings.cluster` describes, for the block only.

    With `keeps`, it serves several stages; the policy rests between them.
    """
    if settings.cluster.is_local:
        async with (
            EnginePool(settings.environment) as pool,
            aclosing(LocalBackend(pool, keeps)) as local,
        ):
            yield local
    else:
        from agentcli.stages.cluster import open_cluster

        async with open_cluster(settings, progress, keeps) as cluster:
            yield cluster


@asynccontextmanager
async def open_grower(
    plan: SamplingPlan, progress: Progress, workplace: Workplace | None = None
) -> AsyncIterator[Grower]:
    """A grower for the block only, from a loop's `workplace` if there is one."""
    if workplace is not None:
        async with workplace.grower(plan) as grower:
            yield grower
    else:
        async with (
            open_workplace(plan.settings, progress, keeps=False) as opened,
            opened.grower(plan) as grower,
        ):
            yield grower
