"""The frame of every stage that samples.

It grows what is owed, in order, and stores each result as it comes. A Grower makes one
tree of one task. A tree depends on the seed, the task, the settings and the model
alone, so a grower may work in this process or on other machines; order, budget, files
and resuming stay here.
"""

import asyncio
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import World
from agentcli.exploration.actor import Actor
from agentcli.exploration.budget import Allowance
from agentcli.exploration.registry import Explore, make
from agentcli.policies.protocol import Policy
from agentcli.records.settings import Settings
from agentcli.records.tree_seconds import TreeSeconds
from agentcli.records.types import Task, Tree
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.sampling import Stopwatch
from agentcli.stages.tally import share_of_success

if TYPE_CHECKING:
    from agentcli.training.critic.appraiser import Appraiser

AHEAD = 8
"""Finished trees that may wait behind a slow one, as a multiple of the concurrency."""

JobT = TypeVar("JobT")
WorkT = TypeVar("WorkT")


class Seedling(NamedTuple):
    """What one tree grows from."""

    task: Task
    seed: int


class TimedTree(NamedTuple):
    """A tree, how long it took and its pictures."""

    tree: Tree
    seconds: TreeSeconds
    pictures: Mapping[str, bytes] = {}
    """The pictures that it names."""

    @property
    def success(self) -> float:
        """Share of the leaves that succeeded."""
        return share_of_success(self.tree)


class Grower(Protocol):
    """Makes trees, several at a time: the seam for other machines."""

    async def grow(self, job: Seedling) -> TimedTree: ...

    def seconds(self) -> dict[str, float]:
        """Where the time went so far: sampling, policy, environment, orchestration."""

    @property
    def retries(self) -> int:
        """Engine calls that were made once more so far, because their process ended."""


class LocalGrower:
    """Grows trees with the engines, the policy and the further models of this process.

    They grow by settings.rollout.method unless `explore` is given.
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

    async def grow(self, job: Seedling) -> TimedTree:
        """Grows a tree, until its deadline. Raises what the method raises.

        With a deadline, what a tree holds depends on how fast policy and engines were:
        the same seed then no longer means the same bytes.
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
                tree = await self._explore(actor, rollout)
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
        """Where the time went since the grower was made."""
        return self._watch.seconds()

    @property
    def retries(self) -> int:
        """Engine calls that were made once more since the grower was made."""
        return self._pool.retries - self._retries_before


async def in_order(
    jobs: Iterable[JobT],
    work: Callable[[JobT], Awaitable[WorkT]],
    ahead: int,
) -> AsyncGenerator[WorkT, None]:
    """Results in the order of the jobs.

    At most `ahead` jobs are begun and not yet handed on. When a job raises, the others
    are cancelled and its error is raised.
    """
    tasks = (asyncio.ensure_future(work(job)) for job in jobs)
    running = deque(islice(tasks, ahead))
    try:
        while running:
            yield await running[0]
            running.popleft()
            running.extend(islice(tasks, 1))
    finally:
        # Nobody would await the others, which hold engines.
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def grow(
    grower: Grower,
    jobs: Iterable[Seedling],
    concurrency: int,
    allowance: Allowance | None = None,
) -> AsyncGenerator[TimedTree, None]:
    """Grows one tree per job, `concurrency` at a time, in the order of the jobs.

    A slow tree holds up no other. With an `allowance` it ends before the first tree
    that is not paid for. A few may have been begun beyond it, because those before them
    cost more than expected; these are thrown away.
    """
    limit = asyncio.Semaphore(concurrency)

    async def one(job: Seedling) -> TimedTree | None:
        async with limit:
            if allowance is None:
                return await grower.grow(job)
            if not await allowance.admits(job.task):
                return None
            grown = await grower.grow(job)
            await allowance.charge(grown.tree)
            return grown

    async with aclosing(in_order(jobs, one, AHEAD * concurrency)) as results:
        async for grown in results:
            # It is not paid for, and neither is any tree after it.
            if grown is None:
                return
            if allowance is not None and not allowance.pays(grown.tree.task):
                return
            yield grown


class Result(Protocol):
    """What `harvest` hands on."""

    @property
    def success(self) -> float | None:
        """Share of success, for the bar; None where there is no such thing."""


ResultT = TypeVar("ResultT", bound=Result)


async def harvest(
    progress: Progress,
    standing: Standing,
    results: AsyncGenerator[ResultT, None],
    store: Callable[[ResultT], bool],
) -> int:
    """Stores results until the total is reached or there are no more.

    Returns how many are done then. `store` writes a result and says whether it counts;
    the bar moves for those that do.
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
