"""The framework of every stage that samples.

It grows the missing trees in order, and stores each result when it arrives. A TreeSampler
makes one tree of one task. A tree depends only on the seed, the task, the settings and
the model, so a sampler may work in this process or on other machines; order, budget,
files and resuming are handled here.

A backend holds the engines and models: of this process, or of the workers of a Ray
cluster.
"""

import asyncio
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import (
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
)
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import World
from agentcli.exploration.actor import Actor
from agentcli.exploration.budget import Allowance
from agentcli.exploration.registry import Explore, grow_tree, make
from agentcli.policies.protocol import Policy, Reloadable
from agentcli.policies.registry import LOADING
from agentcli.records.free_memory import modules_passed_over, use_threads
from agentcli.records.settings import Settings
from agentcli.records.types import Task, Tree, TreeSeconds
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.sampling import (
    SamplerPlan,
    Stopwatch,
    open_further_models,
    start_policy,
)
from agentcli.stages.tally import share_of_success

if TYPE_CHECKING:
    from agentcli.training.critic import Appraiser


AHEAD = 8
"""How many finished trees may wait for a slow one, as a multiple of the concurrency."""

JobT = TypeVar("JobT")
WorkT = TypeVar("WorkT")


class TreeJob(NamedTuple):
    """Everything that one tree grows from."""

    task: Task
    seed: int


class TimedTree(NamedTuple):
    """A tree, its times and its pictures."""

    tree: Tree
    seconds: TreeSeconds
    pictures: Mapping[str, bytes] = {}
    """The pictures that it names."""

    @property
    def success(self) -> float:
        """Share of the leaves that succeeded."""
        return share_of_success(self.tree)


class TreeSampler(Protocol):
    """Grows several trees at a time, here or on other machines."""

    async def grow(self, job: TreeJob) -> TimedTree: ...

    def seconds(self) -> dict[str, float]:
        """Time used so far: sampling, policy, environment, orchestration."""

    @property
    def retries(self) -> int:
        """Number of engine calls repeated so far, because an engine process died."""


class LocalSampler:
    """Grows trees with the engines, the policy and the further models of this process.

    The method is settings.rollout.method unless `explore` is given.
    """

    def __init__(
        self,
        world: World,
        pool: EnginePool,
        policy: Policy,
        settings: Settings,
        explore: Explore | None = None,
        models: Mapping[str, Policy] | None = None,
        appraisers: "Sequence[Appraiser]" = (),
    ) -> None:
        self._world = world
        self._pool = pool
        self._policy = policy
        self._settings = settings
        self._explore = explore or make(settings.rollout.method)
        self._models = models or {}
        self._appraisers = appraisers
        answering = [policy, *self._models.values()]
        self._watch = Stopwatch(pool, *answering, *appraisers)
        self._retries_before = pool.retries

    async def grow(self, job: TreeJob) -> TimedTree:
        """Grows a tree, at most until its deadline. Raises what the method raises.

        With a deadline, the tree depends on the speed of policy and engines: the same
        seed no longer gives the same bytes.
        """
        begun = time.perf_counter()
        rollout = self._settings.rollout
        actor = Actor(
            job.task,
            self._pool,
            self._policy,
            self._world,
            self._settings,
            job.seed,
            self._models,
        )
        try:
            async with asyncio.timeout(rollout.deadline_seconds) as clock:
                tree = await grow_tree(self._explore, actor, rollout)
        except TimeoutError:
            # A method may have deadlines of its own.
            if not clock.expired():
                raise
            tree = actor.cut()
        for appraiser in self._appraisers:
            await appraiser.appraise(tree)
        seconds = TreeSeconds(
            task=job.task.id,
            policy=round(actor.seconds["policy"], 4),
            environment=round(actor.seconds["environment"], 4),
            wall=round(time.perf_counter() - begun, 4),
        )
        await self._pool.release(job.task.id)
        return TimedTree(tree, seconds, actor.pictures(tree))

    def seconds(self) -> dict[str, float]:
        """Time used since the sampler was created."""
        return self._watch.seconds()

    @property
    def retries(self) -> int:
        """Number of engine calls repeated since the sampler was created."""
        return self._pool.retries - self._retries_before


async def in_order(
    jobs: Iterable[JobT],
    work: Callable[[JobT], Awaitable[WorkT]],
    ahead: int,
) -> AsyncGenerator[WorkT, None]:
    """Results in the order of the jobs.

    At most `ahead` jobs are started whose results have not been passed on. If a job
    raises, the others are cancelled and its error is raised.
    """
    tasks = (asyncio.ensure_future(work(job)) for job in jobs)
    running = deque(islice(tasks, ahead))
    try:
        while running:
            # It leaves the queue only afterwards, so that `finally` cancels it, too.
            yield await running[0]
            running.popleft()
            running.extend(islice(tasks, 1))
    finally:
        # Nothing would await the others, which hold engines.
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def grow(
    sampler: TreeSampler,
    jobs: Iterable[TreeJob],
    concurrency: int,
    allowance: Allowance | None = None,
) -> AsyncGenerator[TimedTree, None]:
    """Grows one tree per job, `concurrency` at a time, in the order of the jobs.

    A slow tree does not delay others. With an `allowance`, it ends before the first
    tree that the budget does not cover. A few later trees may already have started,
    because earlier ones cost more than expected; they are discarded.
    """
    limit = asyncio.Semaphore(concurrency)

    async def one(job: TreeJob) -> TimedTree | None:
        async with limit:
            if allowance is None:
                return await sampler.grow(job)
            if not await allowance.admits(job.task):
                return None
            grown = await sampler.grow(job)
            await allowance.charge(grown.tree)
            return grown

    # More than `concurrency`, so that workers stay busy while one tree is slow; not
    # all, because finished trees wait in memory.
    async with aclosing(in_order(jobs, one, AHEAD * concurrency)) as results:
        async for grown in results:
            # The budget does not cover it, nor any later tree.
            if grown is None:
                return
            if allowance is not None and not allowance.pays(grown.tree.task):
                return
            yield grown


class Result(Protocol):
    """An item that `harvest` passes on."""

    @property
    def success(self) -> float | None:
        """Share of success for the progress bar; None if it does not apply."""


ResultT = TypeVar("ResultT", bound=Result)


async def harvest(
    progress: Progress,
    standing: Standing,
    results: AsyncGenerator[ResultT, None],
    store: Callable[[ResultT], bool],
) -> int:
    """Stores results until the total is reached or there are no more.

    Returns the number done. `store` writes a result and says whether it counts; the bar
    advances for those that do.
    """
    progress.start(standing)
    done = standing.done
    async with aclosing(results):
        while standing.total is None or done < standing.total:
            result = await anext(results, None)
            if result is None:
                break
            if store(result):
                done += 1
                progress.advance(1, success=result.success)
    progress.stop()
    return done


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
    async def sampler(self, plan: SamplerPlan) -> AsyncIterator[LocalSampler]:
        """A sampler that works in this process."""
        settings = plan.settings
        world = plan.world
        # An engine takes what the others leave of its GPU.
        async with (
            _open_appraisers(plan) as appraisers,
            self.policy(settings, world, plan.model) as policy,
        ):
            models = await self.further_models(settings, world)
            with modules_passed_over():
                yield LocalSampler(
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
            # A training in this process may have set another number.
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
                # Training comes next, and needs the memory that the policy can spare.
                await self._policy.rest()

    async def aclose(self) -> None:
        """Closes the policy that was kept, and the further models.

        The engines belong to the caller.
        """
        async with self._closing:
            if self._policy is not None:
                await self._policy.close()


@asynccontextmanager
async def _open_appraisers(
    plan: SamplerPlan,
) -> "AsyncIterator[list[Appraiser]]":
    """The critic and the process reward model of a rollout, for the block only."""
    settings = plan.settings.policy
    if plan.critic is None and plan.prm is None:
        yield []
        return
    from agentcli.policies.load import configured_ends, existing
    from agentcli.training.critic import Appraiser, read_scores, read_values

    ends = None
    if plan.critic is not None and plan.model is not None and settings.kind in LOADING:
        ends = configured_ends(plan.model)
    use_threads(plan.settings.threads)
    async with AsyncExitStack() as closing:
        appraisers = []
        for setting, source, read in (
            ("rollout.critic", plan.critic, partial(read_values, ends=ends)),
            ("rollout.prm", plan.prm, read_scores),
        ):
            if source is not None:
                existing(source, setting)
                appraiser = Appraiser(read(source, settings), settings)
                closing.push_async_callback(appraiser.close)
                appraisers.append(appraiser)
        yield appraisers
