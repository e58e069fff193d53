"""What every stage that samples plans and opens.

These are the world, the panel, the engines, the policy and the method's further models.
"""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.exam import Examining
from agentcli.environments.protocol import World, world_as
from agentcli.environments.registry import make_world
from agentcli.errors import UsageError
from agentcli.exploration.registry import check
from agentcli.policies.protocol import Policy, Reloadable
from agentcli.policies.registry import REGISTRY as POLICIES
from agentcli.policies.registry import refuse_missing_vllm
from agentcli.prompts.registry import make_dialect
from agentcli.records.processes import process_count
from agentcli.records.settings import Settings
from agentcli.records.types import Panel
from agentcli.stages.further_models import (
    check_further_models,
    further_sources,
    names_of,
    open_further_models,
    start_policy,
)
from agentcli.stages.plan import (
    StagePlan,
    check_model,
    model_sources,
)
from agentcli.stages.ray_start import check_cluster
from agentcli.stages.threads import use_threads

SECTIONS = ("environment", "policy", "prompt", "rollout")


@dataclass(frozen=True)
class GrowerPlan:
    """The part of a plan that growing a tree needs."""

    settings: Settings
    world: World
    model: str | None
    critic: str | None = None
    prm: str | None = None


@dataclass(frozen=True, kw_only=True)
class SamplingPlan(StagePlan):
    """A stage that plays the tasks of a panel."""

    world: World
    model: str | None
    """Model directory, hub id, or a server's name for it; None without one."""
    panel: Panel
    seed: int
    """Every tree's own seed derives from it."""
    critic: str | None = None
    """Directory of the critic that appraises the trees."""
    prm: str | None = None
    """Directory or hub id of the process reward model that scores their steps."""

    @property
    def of_grower(self) -> GrowerPlan:
        """What growing its trees needs."""
        return GrowerPlan(self.settings, self.world, self.model, self.critic, self.prm)


def check_sampling(
    settings: Settings,
    model: str | None,
    world: World | None = None,
) -> World:
    """The world of these settings, after refusing what would end the first tree.

    `world` is given where it is made already. Raises UsageError for an unknown world,
    method, policy, budget or prompt style, for one of several processes, and what
    `check_model` raises.
    """
    _refuse_torchrun()
    check(settings)
    check_cluster(settings.cluster)
    world = world or make_world(settings.environment)
    check_capability(settings, world)
    make_dialect(settings.prompt, world, settings.rollout.numbered)
    check_policy(settings, settings.policy.kind)
    check_model(model)
    check_further_models(settings)
    return world


def _refuse_torchrun() -> None:
    """Raises UsageError where torchrun started several processes: all would sample."""
    count = process_count()
    if count > 1:
        raise UsageError(
            f"torchrun started {count} processes, and trees grow in one; start this "
            "without torchrun, and train with `torchrun --nproc-per-node N -m agentcli "
            "...`"
        )


def check_capability(settings: Settings, world: World) -> None:
    """Raises UsageError for a world that cannot serve the method or the judge."""
    rollout = settings.rollout
    needed = rollout.capability
    if needed is not None:
        world_as(world, needed, "rollout.method", rollout.method)
    if rollout.answer_judge is not None:
        world_as(world, Examining, "rollout.answer_judge", rollout.answer_judge.kind)


def check_policy(settings: Settings, kind: str) -> None:
    """Raises UsageError for an unknown kind of policy, and for a server's bad address.

    MissingError where vLLM is asked for and not installed.
    """
    POLICIES.place(kind)
    if kind == "openai":
        from agentcli.policies.endpoint import checked_url

        checked_url(settings.policy.endpoint.base_url)
    if kind == "vllm":
        refuse_missing_vllm()


def refuse_shard(settings: Settings, stage: str) -> None:
    """Raises UsageError for a shard: this stage does not walk the panel once."""
    if settings.environment.shard is not None:
        raise UsageError(
            f"environment.shard {settings.environment.shard}: {stage} has no shards, "
            "rollout and evaluations have; leave it out"
        )


def sampling_sources(settings: Settings, model: str | None) -> list[Path]:
    """The directories of the models, and the panel file."""
    sources = [*model_sources(model), *further_sources(settings)]
    if settings.environment.panel is not None:
        sources.append(Path(settings.environment.panel))
    return sources


def sampling_inputs(settings: Settings, model: str | None) -> dict[str, str | None]:
    """The models in use, by a name for people."""
    return {"model": model, **names_of(settings)}


@asynccontextmanager
async def open_policy(
    settings: Settings,
    world: World,
    pool: EnginePool,
    model: str | None,
) -> AsyncIterator[Policy]:
    """Opens the policy for the block only."""
    policy = start_policy(settings, world, pool, model)
    try:
        yield policy
    finally:
        await policy.close()


class Workshop:
    """The engines of a loop, its policy and its method's further models.

    The policy stays up between iterations where it can take other weights, and the
    further models always.
    """

    def __init__(self, pool: EnginePool) -> None:
        self.pool = pool
        self._policy: Reloadable | None = None
        self._models: dict[str, Policy] | None = None
        self._closing = AsyncExitStack()

    async def further_models(
        self, settings: Settings, world: World
    ) -> dict[str, Policy]:
        """The models of the loop's method, opened when they are first asked for."""
        if self._models is None:
            opening = open_further_models(settings, world, self.pool)
            self._models = await self._closing.enter_async_context(opening)
        return self._models

    @asynccontextmanager
    async def policy(
        self,
        settings: Settings,
        world: World,
        model: str | None,
    ) -> AsyncIterator[Policy]:
        """The policy of one iteration, closed at its end where it cannot be kept."""
        # An earlier iteration started it; now it takes this iteration's weights.
        if self._policy is not None and model is not None:
            use_threads(settings.threads)
            await self._policy.load(model)
            policy: Policy = self._policy
        else:
            policy = start_policy(settings, world, self.pool, model)
            if isinstance(policy, Reloadable):
                self._policy = policy
        try:
            yield policy
        finally:
            if self._policy is None:
                await policy.close()
            else:
                await self._policy.rest()

    async def aclose(self) -> None:
        """Closes the policy that was kept, and the further models.

        The engines are the caller's.
        """
        async with self._closing:
            if self._policy is not None:
                await self._policy.close()


class Timed(Protocol):
    """A model that counts its own time."""

    seconds: float
    """Spent computing so far."""


class Stopwatch:
    """Where a sampling stage's time went, in seconds since construction.

    It is made and read in the event loop's thread. `sampling` is wall time, `policy`
    time inside the models, `environment` time inside the engines; these may overlap.
    `orchestration` is the rest: wall time in neither, or this thread's own CPU time
    where that is more. A policy without a model thinks in this thread.
    """

    def __init__(self, pool: EnginePool, *models: Timed) -> None:
        self._pool = pool
        self._models = models
        self._start = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        answering = sum(model.seconds for model in self._models)
        return time.perf_counter(), time.thread_time(), answering, self._pool.seconds

    def seconds(self) -> dict[str, float]:
        """The time so far: sampling, policy, environment, orchestration."""
        spent = zip(self._now(), self._start, strict=True)
        wall, thread, policy, environment = (now - then for now, then in spent)
        return {
            "sampling": wall,
            "policy": policy,
            "environment": environment,
            "orchestration": max(thread, wall - policy - environment),
        }
