"""Where trees grow: in this process, or in the workers of a Ray cluster."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Protocol

from agentcli.environments.engines.pool import EnginePool
from agentcli.records.settings import Settings
from agentcli.reports.standing import Progress
from agentcli.stages.harvest import Grower, local_grower
from agentcli.stages.sampling import SamplingPlan, Workshop


class Workplace(Protocol):
    """Engines and models, which a loop keeps over its stages."""

    def grower(self, plan: SamplingPlan) -> AbstractAsyncContextManager[Grower]:
        """A grower for one stage, with the models that its plan names."""


class LocalWorkplace:
    """The engines and models of this process."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop

    def grower(self, plan: SamplingPlan) -> AbstractAsyncContextManager[Grower]:
        """A grower that works in this process."""
        return local_grower(plan.of_grower, self._workshop)


@asynccontextmanager
async def open_workplace(
    settings: Settings, progress: Progress
) -> AsyncIterator[Workplace]:
    """The place that `settings.cluster` names, for the block only."""
    if settings.cluster.is_local:
        async with (
            EnginePool(settings.environment) as pool,
            aclosing(Workshop(pool)) as workshop,
        ):
            yield LocalWorkplace(workshop)
    else:
        from agentcli.stages.cluster import open_cluster

        async with open_cluster(settings, progress) as cluster:
            yield cluster


@asynccontextmanager
async def open_grower(
    plan: SamplingPlan, progress: Progress, workplace: Workplace | None = None
) -> AsyncIterator[Grower]:
    """A grower for the block only, at a loop's `workplace` where there is one."""
    if workplace is not None:
        async with workplace.grower(plan) as grower:
            yield grower
    else:
        async with (
            open_workplace(plan.settings, progress) as opened,
            opened.grower(plan) as grower,
        ):
            yield grower
