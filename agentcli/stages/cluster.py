"""Where trees grow: in this process, or in the workers of a Ray cluster.

The command itself handles order, budget, files and resuming: a worker gets a task and
returns a tree. If a worker dies, Ray restarts it, and its tasks are assigned again. A
task that has lost its worker twice is played alone next, so that it cannot take other
tasks down with it. If it loses that worker too, its tree is an errored leaf.

Ray is started, or a cluster joined, with token authentication: without it, anyone who
can reach Ray can run code. A Ray on this machine gets a secret token that is valid
until the command ends.
"""

import asyncio
import logging
import secrets
import time
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import (
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from pathlib import Path
from typing import Any

import msgspec

from agentcli.environments.engines.pool import EnginePool
from agentcli.errors import AgentCliError, DataError, MissingError, UsageError
from agentcli.exploration.nodes import errored_tree
from agentcli.policies.registry import LOADING
from agentcli.records.faults import one_line
from agentcli.records.processes import environ_with
from agentcli.records.scratch import ScratchFolder
from agentcli.records.settings import ClusterSettings, Settings
from agentcli.records.types import TreeSeconds
from agentcli.reports.standing import Progress
from agentcli.stages.backend import LocalBackend, TimedTree, TreeJob, TreeSampler
from agentcli.stages.remote import (
    RemoteAnswer,
    RemoteFault,
    RemoteReport,
    RemoteTree,
    RemoteWorker,
    remote_stage,
)
from agentcli.stages.sampling import MODE, TOKEN_FILE, SamplingPlan, check_cluster

TRIES = 3
"""Number of workers that a task may lose; then its tree is an errored leaf."""
START_SECONDS = 600.0
"""How long the workers may take to be scheduled and to load the model."""
CLOSE_SECONDS = 10.0
"""How long the workers may take to stop their engines and models."""
FOR_EVER = -1
STORE_BYTES = 256_000_000
"""Memory for trees in transit; Ray would reserve a third of the machine's."""


class WorkerSlots:
    """One worker, and how many of its slots are taken."""

    def __init__(self, actor: Any, places: int) -> None:
        self.taken = 0
        self._actor = actor
        self._places = places
        self._free = asyncio.Semaphore(places)
        self._emptying = asyncio.Lock()

    @asynccontextmanager
    async def place(self, *, alone: bool) -> AsyncIterator[None]:
        """Takes one slot for the block, or with `alone` all of them."""
        count = self._places if alone else 1
        # Counted before there is room, so that `Cluster.place` sees who waits here.
        self.taken += count
        held = 0
        try:
            # Two tasks that want all slots would wait for each other's.
            async with self._emptying:
                while held < count:
                    await self._free.acquire()
                    held += 1
            yield
        finally:
            self.taken -= count
            for _ in range(held):
                self._free.release()

    async def grow(self, stage: bytes, job: TreeJob) -> RemoteTree:
        """Grows a tree in the worker. Raises the worker's error, and RayActorError."""
        method = self._actor.grow
        answer = await _answer(method.remote(stage, msgspec.json.encode(job)))
        assert isinstance(answer, RemoteTree)
        return answer

    async def prepare(self, stage: bytes) -> RemoteReport:
        """Waits until the worker is up (again) and knows the stage."""
        from ray.exceptions import RayActorError

        # It changes nothing that a second call would spoil, unlike `grow`, so Ray may
        # repeat it as often as the worker ends.
        method = self._actor.prepare.options(max_task_retries=FOR_EVER)
        try:
            answer = await _answer(method.remote(stage))
        except RayActorError as error:
            raise MissingError(
                f"a worker could not be started ({one_line(error)}); install `agentcli` "
                "on every machine of the cluster"
            ) from error
        assert isinstance(answer, RemoteReport)
        return answer

    async def rest(self) -> None:
        """Ends the stage in the worker, whose policy frees its memory."""
        await self._actor.rest.remote()

    async def close(self) -> None:
        """Stops the worker's engines and models."""
        await self._actor.close.remote()


async def _answer(reference: Any) -> RemoteReport | RemoteTree:
    """The answer of a worker. Raises the error that it reports."""
    import ray

    try:
        data = await reference
    except asyncio.CancelledError:
        # Without it the worker would go on with a tree that nobody awaits.
        ray.cancel(reference)
        raise
    except ConnectionError as error:
        raise MissingError(
            "the Ray cluster does not answer any more; start it again, and go on with "
            "--resume"
        ) from error
    except ray.exceptions.RayTaskError as error:
        # Expected errors are answered as a RemoteFault; only others arrive in this way.
        raise AgentCliError(f"a worker failed: {error.cause!r}") from error
    answer: RemoteAnswer = msgspec.json.decode(data, type=RemoteAnswer)
    if isinstance(answer, RemoteFault):
        raise answer.error()
    return answer


class Cluster:
    """The workers of one command, shared by all its stages."""

    def __init__(
        self, workers: Sequence[WorkerSlots], progress: Progress, keeps: bool = True
    ) -> None:
        self._progress = progress
        self._keeps = keeps
        self._up = list(workers)
        self._down: dict[WorkerSlots, asyncio.Task[None]] = {}
        """Workers that died, and the tasks that wait until they are up again."""
        self._commits: dict[str, str] = {}

    @asynccontextmanager
    async def sampler(self, plan: SamplingPlan) -> AsyncIterator[TreeSampler]:
        """A sampler for one stage, after checking every worker.

        Raises MissingError and DataError for a worker with another version or model,
        and if the workers cannot be scheduled.
        """
        stage = msgspec.json.encode(remote_stage(plan))
        count = len(self._up)
        self._progress.wait(f"starting {count} workers")
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.gather(
                    *(self._check(worker, stage) for worker in self._up)
                )
        except TimeoutError as error:
            raise MissingError(
                f"cluster.workers {count}: not all are up after {START_SECONDS:.0f} s; "
                "ask for fewer with --workers, or free processors of the cluster"
            ) from error
        yield RemoteSampler(self, plan.settings, stage)
        if self._keeps:
            # A worker that fails here is found by the next stage.
            resting = [worker.rest() for worker in self._up]
            await asyncio.gather(*resting, return_exceptions=True)

    @asynccontextmanager
    async def place(self, *, alone: bool) -> AsyncIterator[WorkerSlots]:
        """Takes a slot at the worker with the fewest tasks, for the block only.

        Waits until any worker is up. Raises the error of the last worker if all failed.
        """
        while True:
            while not self._up:
                await self._any_up()
            worker = min(self._up, key=lambda worker: worker.taken)
            async with worker.place(alone=alone):
                # It may have died while this task waited.
                if worker in self._up:
                    yield worker
                    return

    async def _any_up(self) -> None:
        waiting = self._down.values()
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    def lost(self, worker: WorkerSlots, stage: bytes) -> None:
        """Takes a dead worker out of use until Ray has restarted it."""
        if worker not in self._up:
            return
        self._up.remove(worker)
        # Ray itself prints what it knows about the cause.
        self._progress.note("a worker ended; its tasks are given out again")
        self._down[worker] = asyncio.create_task(self._revive(worker, stage))

    async def aclose(self) -> None:
        """Stops everything that the workers run; Ray ends the workers."""
        for task in self._down.values():
            task.cancel()
        closing = [worker.close() for worker in self._up]
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(
                    *self._down.values(), *closing, return_exceptions=True
                )

    async def _revive(self, worker: WorkerSlots, stage: bytes) -> None:
        try:
            await self._check(worker, stage)
        except AgentCliError as error:
            # The other workers continue without it.
            if len(self._down) > 1 or self._up:
                self._progress.note(f"left out: {error}")
            raise
        del self._down[worker]
        self._up.append(worker)

    async def _check(self, worker: WorkerSlots, stage: bytes) -> None:
        """Waits for a worker to be ready.

        Raises the error that it reports, and DataError if the hub gave it other
        weights.
        """
        report = await worker.prepare(stage)
        for model, commit in report.commits.items():
            first = self._commits.setdefault(model, commit)
            if commit != first:
                raise DataError(
                    f"worker on {report.node}: {model} is commit {commit}, and "
                    f"{first} elsewhere; download the same on every machine"
                )


class RemoteSampler:
    """Grows the trees of one stage in the workers of a cluster."""

    def __init__(self, cluster: Cluster, settings: Settings, stage: bytes) -> None:
        self._cluster = cluster
        self._method = settings.rollout.method
        self._stage = stage
        self._begun = time.perf_counter()
        self._latest: dict[str, RemoteTree] = {}
        """The latest tree of every worker; it contains the worker's time so far."""

    async def grow(self, job: TreeJob) -> TimedTree:
        """Grows a tree: only an errored leaf if the task keeps killing its workers."""
        from ray.exceptions import RayActorError

        begun = time.perf_counter()
        for number in range(1, TRIES + 1):
            async with self._cluster.place(alone=number == TRIES) as worker:
                try:
                    grown = await worker.grow(self._stage, job)
                except RayActorError:
                    self._cluster.lost(worker, self._stage)
                    continue
            self._latest[grown.worker] = grown
            return TimedTree(grown.tree, grown.seconds, grown.pictures)
        fault = f"{TRIES} workers ended while they played this task"
        tree = errored_tree(job.task, self._method, job.seed, fault)
        wall = round(time.perf_counter() - begun, 4)
        seconds = TreeSeconds(task=job.task.id, policy=0, environment=0, wall=wall)
        return TimedTree(tree, seconds)

    def seconds(self) -> dict[str, float]:
        """Wall time here; policy, environment and orchestration time of all workers."""
        total: dict[str, float] = {}
        for grown in self._latest.values():
            for name, seconds in grown.spent.items():
                total[name] = total.get(name, 0.0) + seconds
        return {**total, "sampling": time.perf_counter() - self._begun}

    @property
    def retries(self) -> int:
        """Number of engine calls repeated, over all workers."""
        return sum(grown.retries for grown in self._latest.values())


@contextmanager
def connected(cluster: ClusterSettings) -> Iterator[Any]:
    """The module `ray`, connected for the block only."""
    check_cluster(cluster)
    # Names of its sockets are limited to 107 bytes, so the folder needs a short path.
    with ScratchFolder(Path("/tmp")) as folder:
        variables = {MODE: "token"}
        if cluster.on == "ray":
            token = Path(folder) / "token"
            token.touch(mode=0o600)
            token.write_text(secrets.token_hex(32))
            variables[TOKEN_FILE] = str(token)
        # Ray reads them when it is imported.
        with environ_with(variables):
            import ray

            try:
                if cluster.on == "ray":
                    _start(ray, cluster.workers, folder)
                else:
                    _join(ray, cluster.on)
                yield ray
            finally:
                ray.shutdown()


def _start(ray: Any, workers: int, folder: str) -> None:
    """Starts Ray on this machine. Raises MissingError if it does not start."""
    try:
        ray.init(
            address="local",
            # A worker counts as one CPU, and more of them than there are cores are
            # allowed here.
            num_cpus=workers,
            object_store_memory=STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
    # On a machine that is too busy, Ray raises a bare Exception.
    except Exception as error:
        raise MissingError(
            f"cluster.on ray: Ray does not start here ({one_line(error)}); "
            "try again when less is running, or use --on local"
        ) from error


def _join(ray: Any, address: str) -> None:
    """Joins a running cluster. Raises MissingError if it does not answer."""
    # Everything that Ray logs meanwhile is in the error too.
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            ray.init(address=address, log_to_driver=False)
    except (ConnectionError, RuntimeError) as error:
        raise MissingError(
            f"cluster.on {address}: no cluster could be joined ({one_line(error)}); look at the "
            "address and at the token, or start its head with: ray start --head"
        ) from error
    finally:
        logging.disable(logging.NOTSET)


@asynccontextmanager
async def open_cluster(
    settings: Settings, progress: Progress, keeps: bool = True
) -> AsyncIterator[Cluster]:
    """Starts the workers, for the block only.

    With `keeps`, there is something to do between stages, for which workers rest.

    Raises MissingError if Ray or the cluster is missing, UsageError for more workers
    than the cluster has room for.
    """
    wanted = settings.cluster
    progress.wait("starting Ray" if wanted.on == "ray" else f"joining {wanted.on}")
    with connected(wanted) as ray:
        gpus = _gpus(settings, ray)
        _refuse_too_many(settings, ray.cluster_resources(), gpus)
        places = settings.rollout.concurrency
        remote = ray.remote(RemoteWorker).options(
            num_cpus=1,
            num_gpus=gpus,
            max_restarts=FOR_EVER,
            # A task that Ray repeated by itself would not count towards TRIES.
            max_task_retries=0,
            # One more than the tasks, so that `prepare` need not wait for a tree.
            max_concurrency=places + 1,
            scheduling_strategy="SPREAD",
        )
        workers = [WorkerSlots(remote.remote(), places) for _ in range(wanted.workers)]
        async with aclosing(Cluster(workers, progress, keeps)) as cluster:
            yield cluster


def _gpus(settings: Settings, ray: Any) -> float:
    """GPUs per worker: cluster.gpus; by default those that its model takes, if any."""
    gpus = settings.cluster.gpus
    if gpus is not None:
        return gpus
    policy = settings.policy
    has_gpus = ray.cluster_resources().get("GPU", 0) > 0
    if not has_gpus or policy.kind not in LOADING:
        return 0.0
    if policy.kind != "vllm":
        return 1.0
    return float(policy.vllm.replicas * policy.vllm.tensor_parallel)


def _refuse_too_many(
    settings: Settings, resources: dict[str, float], gpus: float
) -> None:
    workers = settings.cluster.workers
    for name, each in (("CPU", 1.0), ("GPU", gpus)):
        there = resources.get(name, 0.0)
        if each * workers > there:
            raise UsageError(
                f"cluster.workers {workers}: each takes {each:g} {name}, and the "
                f"cluster has {there:g}; ask for fewer with --workers"
            )


Backend = LocalBackend | Cluster
"""Engines and models that a loop keeps across its stages."""


@asynccontextmanager
async def open_backend(
    settings: Settings, progress: Progress, keeps: bool = True
) -> AsyncIterator[Backend]:
    """The backend that `settings.cluster` describes, for the block only.

    With `keeps`, it serves several stages; the policy rests between them.
    """
    if settings.cluster.is_local:
        async with (
            EnginePool(settings.environment) as pool,
            aclosing(LocalBackend(pool, keeps)) as local,
        ):
            yield local
    else:
        async with open_cluster(settings, progress, keeps) as cluster:
            yield cluster


@asynccontextmanager
async def open_sampler(
    plan: SamplingPlan, progress: Progress, backend: Backend | None = None
) -> AsyncIterator[TreeSampler]:
    """A sampler for the block only, from a loop's `backend` if there is one."""
    if backend is not None:
        async with backend.sampler(plan) as sampler:
            yield sampler
    else:
        async with (
            open_backend(plan.settings, progress, keeps=False) as opened,
            opened.sampler(plan) as sampler,
        ):
            yield sampler
