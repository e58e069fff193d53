"""A worker, which `--on ray` starts on other machines.

It takes tasks of a stage and returns trees. It keeps its engines, policy and further
models as long as the command runs, like a loop in one process.
"""

import asyncio
import os
import socket
from contextlib import AsyncExitStack, aclosing
from uuid import uuid4

import msgspec

from agentcli.environments.engines.pool import EnginePool
from agentcli.errors import AgentCliError, MissingError
from agentcli.stages.harvest import LocalGrower, Seedling
from agentcli.stages.local_backend import LocalBackend
from agentcli.stages.remote import (
    RemoteAnswer,
    RemoteFault,
    RemoteReport,
    RemoteStage,
    RemoteTree,
    fault_of,
    hub_commits,
    refuse_other_files,
    refuse_other_versions,
    versions_here,
)


class RemoteWorker:
    """Grows trees for a command on another machine.

    Its methods take and return JSON. Errors of agentcli are returned as a RemoteFault.
    """

    def __init__(self) -> None:
        self._name = uuid4().hex
        self._opening = asyncio.Lock()
        self._stage = b""
        self._grower: LocalGrower | None = None
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
            grower = await self._open(stage)
            grown = await grower.grow(msgspec.json.decode(job, type=Seedling))
        except (AgentCliError, ModuleNotFoundError) as error:
            return _encoded(_fault(error))
        return _encoded(
            RemoteTree(
                tree=grown.tree,
                seconds=grown.seconds,
                pictures=dict(grown.pictures),
                worker=self._name,
                spent=grower.seconds(),
                retries=grower.retries,
            )
        )

    async def rest(self) -> None:
        """Ends the stage; the policy frees memory that a training may need."""
        async with self._opening:
            self._grower = None
            await self._of_stage.aclose()

    async def close(self) -> None:
        """Stops engines and models."""
        await self._closing.aclose()

    async def _open(self, stage: bytes) -> LocalGrower:
        """The grower of a stage; the grower of the previous stage is closed."""
        async with self._opening:
            if self._grower is None or self._stage != stage:
                self._grower = None
                await self._of_stage.aclose()
                self._grower = await self._grower_of(stage)
                self._stage = stage
            return self._grower

    async def _grower_of(self, stage: bytes) -> LocalGrower:
        wanted = msgspec.json.decode(stage, type=RemoteStage)
        refuse_other_versions(wanted.versions, versions_here())
        try:
            os.chdir(wanted.folder)
        except OSError as error:
            raise MissingError(
                f"{wanted.folder}: {error.strerror}; the workers must see the folder "
                "where the command was typed (a shared disk)"
            ) from error
        refuse_other_files(wanted.hashes)
        plan = wanted.grower_plan()
        if self._backend is None:
            engines = EnginePool(plan.settings.environment)
            pool = await self._closing.enter_async_context(engines)
            backend = LocalBackend(pool)
            self._backend = await self._closing.enter_async_context(aclosing(backend))
            self._closing.push_async_callback(self._of_stage.aclose)
        opened = self._backend.grower(plan)
        return await self._of_stage.enter_async_context(opened)


def _fault(error: AgentCliError | ModuleNotFoundError) -> RemoteFault:
    """The error with the name of this machine."""
    return fault_of(error, f"worker on {socket.gethostname()}: ")


def _encoded(answer: RemoteAnswer) -> bytes:
    return msgspec.json.encode(answer)
