"""Trees grow in this process: its engines, its policy and its further models."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import World
from agentcli.policies.protocol import Policy, Reloadable
from agentcli.records.free_memory import use_threads
from agentcli.records.settings import Settings
from agentcli.stages.further_models import open_further_models, start_policy
from agentcli.stages.harvest import LocalGrower
from agentcli.stages.sampling import GrowerPlan

if TYPE_CHECKING:
    from agentcli.training.critic.appraiser import Appraiser


class LocalBackend:
    """The engines of this process, a loop's policy and its method's further models.

    With `keeps`, the policy keeps running between iterations if it can load other
    weights; the further models always do.
    """

    def __init__(self, pool: EnginePool, keeps: bool = True) -> None:
        self._pool = pool
        self._keeps = keeps
        self._policy: Reloadable | None = None
        self._models: dict[str, Policy] | None = None
        self._closing = AsyncExitStack()

    @asynccontextmanager
    async def grower(self, plan: GrowerPlan) -> AsyncIterator[LocalGrower]:
        """A grower that works in this process."""
        settings = plan.settings
        world = plan.world
        # An engine takes what the others leave of its GPU.
        async with (
            _open_appraisers(plan) as appraisers,
            self.policy(settings, world, plan.model) as policy,
        ):
            models = await self.further_models(settings, world)
            yield LocalGrower(
                world, self._pool, policy, settings, None, models, appraisers
            )

    async def further_models(
        self, settings: Settings, world: World
    ) -> dict[str, Policy]:
        """The models of the loop's method, opened on first use."""
        if self._models is None:
            opening = open_further_models(settings, world, self._pool)
            self._models = await self._closing.enter_async_context(opening)
        return self._models

    @asynccontextmanager
    async def policy(
        self,
        settings: Settings,
        world: World,
        model: str | None,
    ) -> AsyncIterator[Policy]:
        """The policy of one iteration; closed at its end if it cannot be kept."""
        # It was started by an earlier iteration and now loads this iteration's weights.
        if self._policy is not None and model is not None:
            use_threads(settings.threads)
            await self._policy.load(model)
            policy: Policy = self._policy
        else:
            policy = start_policy(settings, world, self._pool, model)
            if self._keeps and isinstance(policy, Reloadable):
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

        The engines belong to the caller.
        """
        async with self._closing:
            if self._policy is not None:
                await self._policy.close()


@asynccontextmanager
async def _open_appraisers(plan: GrowerPlan) -> "AsyncIterator[list[Appraiser]]":
    """The critic and the process reward model of a rollout, for the block only."""
    settings = plan.settings.policy
    if plan.critic is None and plan.prm is None:
        yield []
        return
    from agentcli.policies.load import existing
    from agentcli.training.critic.appraiser import Appraiser, read_scores, read_values

    use_threads(plan.settings.threads)
    async with AsyncExitStack() as closing:
        appraisers = []
        for setting, source, read in (
            ("rollout.critic", plan.critic, read_values),
            ("rollout.prm", plan.prm, read_scores),
        ):
            if source is not None:
                existing(source, setting)
                appraiser = Appraiser(read(source, settings), settings)
                closing.push_async_callback(appraiser.close)
                appraisers.append(appraiser)
        yield appraisers
