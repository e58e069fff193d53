"""A worker that grows trees elsewhere, and its messages to and from the command.

All messages are JSON: a process never unpickles objects from another one.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.registry import make_world
from agentcli.errors import AgentCliError, DataError, MissingError, error_class
from agentcli.exploration.settings import decode
from agentcli.policies.load import CONFIG
from agentcli.records.files import sha256_file
from agentcli.records.free_memory import lacks_memory
from agentcli.records.runs import versions
from agentcli.records.types import Tree, TreeSeconds
from agentcli.requirements import remedy_for
from agentcli.stages.backend import LocalBackend, LocalSampler, TreeJob
from agentcli.stages.plan import plain
from agentcli.stages.sampling import SamplerPlan, SamplingPlan


class RemoteStage(msgspec.Struct, kw_only=True):
    """A stage in the form that workers get.

    It is sent with every task, so that a restarted worker has everything it needs.
    """

    settings: dict[str, Any]
    model: str | None
    critic: str | None
    prm: str | None
    folder: str
    """The command's working directory; paths in the settings are relative to it."""
    hashes: dict[str, str]
    """SHA-256 of the models' files and the panel, by path."""
    versions: dict[str, str]
    """Versions of agentcli, its source and the packages that a result may depend on."""

    def sampler_plan(self) -> SamplerPlan:
        """The plan, with its world created in this process."""
        settings = decode(self.settings)
        world = make_world(settings.environment)
        return SamplerPlan(
            settings=settings,
            world=world,
            model=self.model,
            critic=self.critic,
            prm=self.prm,
        )


class RemoteReport(msgspec.Struct, tag=True):
    """A worker's report before its first task."""

    node: str
    commits: dict[str, str]
    """Commits of models from the hub, by model id."""


class RemoteTree(msgspec.Struct, tag=True):
    """A tree, and the time its worker has spent on the stage so far."""

    tree: Tree
    seconds: TreeSeconds
    pictures: dict[str, bytes]
    worker: str
    """An id that is new after every restart."""
    spent: dict[str, float]
    retries: int


class RemoteFault(msgspec.Struct, tag=True):
    """An error that was raised in another process: one of errors.py, or MemoryError."""

    kind: str
    text: str

    def error(self) -> Exception:
        """The error as an exception."""
        if self.kind == MemoryError.__name__:
            return MemoryError(self.text)
        return error_class(self.kind)(self.text)


RemoteAnswer = RemoteReport | RemoteTree | RemoteFault


def fault_of(error: Exception, place: str) -> RemoteFault:
    """The error as the command should raise it; its text begins with `place`."""
    if isinstance(error, AgentCliError):
        return RemoteFault(type(error).__name__, f"{place}{error}")
    if isinstance(error, ModuleNotFoundError):
        text = f"{error.name} is not installed; type: {remedy_for(error.name or '')}"
        return RemoteFault(MissingError.__name__, f"{place}{text}")
    text = f"{place}{type(error).__name__}: {error}"
    if lacks_memory(error):
        return RemoteFault(MemoryError.__name__, text)
    debug = "(unexpected; AGENTCLI_DEBUG=1 shows where)"
    return RemoteFault(AgentCliError.__name__, f"{text} {debug}")


def remote_stage(plan: SamplingPlan) -> RemoteStage:
    """The stage in the form that its workers get."""
    return RemoteStage(
        settings=plain(plan.settings),
        model=plan.model,
        critic=plan.critic,
        prm=plan.prm,
        folder=os.getcwd(),
        hashes=plan.hashes,
        versions=versions_here(),
    )


def versions_here() -> dict[str, str]:
    """The versions of packages, and a hash of agentcli's own source."""
    digest = sha256()
    folder = Path(__file__).parents[1]
    # Questions are drawn from the tables.
    for file in sorted([*folder.rglob("*.py"), *folder.rglob("*.tsv")]):
        digest.update(file.read_bytes())
    # CPU and GPU builds count as one version: 2.13.0+cpu, 2.13.0+cu128.
    public = {name: text.partition("+")[0] for name, text in versions().items()}
    return {**public, "agentcli's source": digest.hexdigest()[:12]}


def refuse_other_versions(wanted: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Raises MissingError for the first package whose version differs here.

    A package that only one side has is ignored; if it is needed, its absence is
    reported.
    """
    for name, version in wanted.items():
        # A GPU machine may lack what only the command's machine uses, and the reverse.
        there = here.get(name, version)
        if there != version:
            raise MissingError(
                f"{name} is {there}, and {version} where the command was typed; "
                "install the same on every machine"
            )


def refuse_other_files(hashes: Mapping[str, str]) -> None:
    """Raises MissingError for a missing file, DataError for one with other contents."""
    for path, sha256_there in hashes.items():
        if not Path(path).is_file():
            raise MissingError(
                f"{path}: no such file here; the workers must see the folder of the "
                "command (a shared disk), or the same files in it"
            )
        if sha256_file(Path(path)) != sha256_there:
            raise DataError(
                f"{path}: another file than where the command was typed; copy that "
                "one to every machine"
            )


def hub_commits(*models: str | None) -> dict[str, str]:
    """The commit of each model that was loaded here from the hub."""
    from huggingface_hub import try_to_load_from_cache

    commits = {}
    for model in models:
        if model is None or Path(model).is_dir():
            continue
        file = try_to_load_from_cache(model, CONFIG)
        if isinstance(file, str):
            # The hub's cache has a folder snapshots/COMMIT for every version.
            commits[model] = Path(file).parent.name
    return commits


class RemoteWorker:
    """Grows trees for a command on another machine.

    Its methods take and return JSON. Errors of agentcli are returned as a RemoteFault.
    """

    def __init__(self) -> None:
        self._name = uuid4().hex
        self._opening = asyncio.Lock()
        self._stage = b""
        self._sampler: LocalSampler | None = None
        self._closing = AsyncExitStack()
        self._of_stage = AsyncExitStack()
        self._backend: LocalBackend | None = None

    async def prepare(self, stage: bytes) -> bytes:
        """Checks this machine, and opens engines and models."""
        try:
            await self._open(stage)
        except (AgentCliError, ModuleNotFoundError) as error:
            return _encoded(_fault(error))
        models = msgspec.json.decode(stage, type=RemoteStage)
        commits = hub_commits(models.model, models.critic, models.prm)
        return _encoded(RemoteReport(socket.gethostname(), commits))

    async def grow(self, stage: bytes, job: bytes) -> bytes:
        """Grows one tree; opens the stage if it is new."""
        try:
            sampler = await self._open(stage)
            grown = await sampler.grow(msgspec.json.decode(job, type=TreeJob))
        except (AgentCliError, ModuleNotFoundError) as error:
            return _encoded(_fault(error))
        return _encoded(
            RemoteTree(
                tree=grown.tree,
                seconds=grown.seconds,
                pictures=dict(grown.pictures),
                worker=self._name,
                spent=sampler.seconds(),
                retries=sampler.retries,
            )
        )

    async def rest(self) -> None:
        """Ends the stage; the policy frees memory that a training may need."""
        # A tree that still arrives must not open the stage while it is being closed.
        async with self._opening:
            self._sampler = None
            await self._of_stage.aclose()

    async def close(self) -> None:
        """Stops engines and models."""
        await self._closing.aclose()

    async def _open(self, stage: bytes) -> LocalSampler:
        """The sampler of a stage; the sampler of the previous stage is closed."""
        async with self._opening:
            if self._sampler is None or self._stage != stage:
                self._sampler = None
                await self._of_stage.aclose()
                self._sampler = await self._sampler_of(stage)
                self._stage = stage
            return self._sampler

    async def _sampler_of(self, stage: bytes) -> LocalSampler:
        wanted = msgspec.json.decode(stage, type=RemoteStage)
        refuse_other_versions(wanted.versions, versions_here())
        try:
            # Paths of settings are relative to the command's folder, not to Ray's.
            os.chdir(wanted.folder)
        except OSError as error:
            raise MissingError(
                f"{wanted.folder}: {error.strerror}; the workers must see the folder "
                "where the command was typed (a shared disk)"
            ) from error
        refuse_other_files(wanted.hashes)
        plan = wanted.sampler_plan()
        if self._backend is None:
            engines = EnginePool(plan.settings.environment)
            pool = await self._closing.enter_async_context(engines)
            backend = LocalBackend(pool)
            self._backend = await self._closing.enter_async_context(aclosing(backend))
            # Pushed last, closed first: a stage's sampler uses the backend.
            self._closing.push_async_callback(self._of_stage.aclose)
        opened = self._backend.sampler(plan)
        return await self._of_stage.enter_async_context(opened)


def _fault(error: AgentCliError | ModuleNotFoundError) -> RemoteFault:
    """The error with the name of this machine."""
    return fault_of(error, f"worker on {socket.gethostname()}: ")


def _encoded(answer: RemoteAnswer) -> bytes:
    return msgspec.json.encode(answer)
