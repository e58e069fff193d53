"""What passes between a command and the workers that grow its trees elsewhere.

All of it travels as JSON: no record is ever an object of another process.
"""

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

import agentcli
from agentcli import errors
from agentcli.environments.registry import make_world
from agentcli.errors import AgentCliError, DataError, MissingError
from agentcli.exploration.settings import decode
from agentcli.policies.load import CONFIG
from agentcli.records.files import sha256_file
from agentcli.records.runs import versions
from agentcli.records.tree_seconds import TreeSeconds
from agentcli.records.types import Tree
from agentcli.stages.plan import plain
from agentcli.stages.sampling import GrowerPlan, SamplingPlan


class RemoteStage(msgspec.Struct, kw_only=True):
    """A stage as a worker gets it.

    It goes with every task, so that a worker that was started again knows all of it.
    """

    settings: dict[str, Any]
    model: str | None
    critic: str | None
    prm: str | None
    folder: str
    """Where the command was typed; paths in the settings begin there."""
    hashes: dict[str, str]
    """sha256 of the models' files and the panel, by path."""
    versions: dict[str, str]
    """Of agentcli, its source and the packages that a result may depend on."""

    def grower_plan(self) -> GrowerPlan:
        """The plan with its world made here."""
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
    """What a worker says of itself before its first task."""

    node: str
    commits: dict[str, str]
    """Of the models of the hub, by their ids."""


class RemoteTree(msgspec.Struct, tag=True):
    """A tree, with what its worker has spent so far on the stage."""

    tree: Tree
    seconds: TreeSeconds
    pictures: dict[str, bytes]
    worker: str
    """Another one after every start."""
    spent: dict[str, float]
    retries: int


class RemoteFault(msgspec.Struct, tag=True):
    """An error of agentcli/errors.py that was raised in a worker."""

    kind: str
    text: str

    def error(self) -> AgentCliError:
        """The error itself."""
        kind: type[AgentCliError] = getattr(errors, self.kind)
        return kind(self.text)


RemoteAnswer = RemoteReport | RemoteTree | RemoteFault


def remote_stage(plan: SamplingPlan) -> RemoteStage:
    """The stage as its workers get it."""
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
    folder = Path(agentcli.__file__).parent
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.read_bytes())
    # A build for a GPU and one for a CPU are one version: 2.13.0+cpu, 2.13.0+cu128.
    public = {name: text.partition("+")[0] for name, text in versions().items()}
    return {**public, "agentcli's source": digest.hexdigest()[:12]}


def refuse_other_versions(wanted: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Raises MissingError for the first package that is another one here.

    What only one side has does not matter: where it is needed, it is missed.
    """
    for name, version in wanted.items():
        there = here.get(name, version)
        if there != version:
            raise MissingError(
                f"{name} is {there}, and {version} where the command was typed; "
                "install the same on every machine"
            )


def refuse_other_files(hashes: Mapping[str, str]) -> None:
    """Raises MissingError for a file that is not here, DataError for another one."""
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
    """The commit of each model of the hub that was loaded here."""
    from huggingface_hub import try_to_load_from_cache

    commits = {}
    for model in models:
        if model is None or Path(model).is_dir():
            continue
        file = try_to_load_from_cache(model, CONFIG)
        if isinstance(file, str):
            commits[model] = Path(file).parent.name
    return commits
