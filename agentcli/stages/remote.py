"""The messages between a command and the workers that grow its trees elsewhere.

All messages are JSON: a process never unpickles objects from another one.
"""

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from agentcli import errors
from agentcli.environments.registry import make_world
from agentcli.errors import AgentCliError, DataError, MissingError
from agentcli.exploration.settings import decode
from agentcli.policies.load import CONFIG
from agentcli.records.files import sha256_file
from agentcli.records.runs import versions
from agentcli.records.shortage import lacks_memory
from agentcli.records.types import Tree, TreeSeconds
from agentcli.requirements import remedy_for
from agentcli.stages.plan import plain
from agentcli.stages.sampling import GrowerPlan, SamplingPlan


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

    def grower_plan(self) -> GrowerPlan:
        """The plan, with its world created in this process."""
        settings = decode(self.settings)
        world = make_world(settings.environment)
        return GrowerPlan(
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
        kinds = {**vars(errors), MemoryError.__name__: MemoryError}
        error: Exception = kinds[self.kind](self.text)
        return error


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
    for file in sorted(folder.rglob("*.py")):
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
            commits[model] = Path(file).parent.name
    return commits
