"""All worlds by name: built-in, from installed packages, or given as a class.

An installed package adds a world with an entry point in the group
`agentcli.environments` (name -> "package.module:Class"). The name of a world that is
not packaged is "package.module:Class" or "folder/file.py:Class". A Gymnasium
environment is named "gym:ID", an OpenEnv server "http://HOST:PORT". A world is
imported only when it is made, so listing names imports none.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from agentcli.environments.protocol import Card, Engine, World
from agentcli.errors import AgentCliError, MissingError, UsageError
from agentcli.records.section import fault_and_path
from agentcli.records.settings import EnvironmentSettings, Settings
from agentcli.records.types import IMPORTED, Task
from agentcli.registry import Registry, nearest, prints_aside

WORLDS = {
    "alfworld": "agentcli.worlds.alfworld.world:AlfworldWorld",
    "ezpoints": "agentcli.worlds.ezpoints:EzPointsWorld",
    "scienceworld": "agentcli.worlds.scienceworld.world:ScienceWorldWorld",
    "search_qa": "agentcli.worlds.search_qa.world:SearchQaWorld",
    "sokoban": "agentcli.worlds.sokoban.world:SokobanWorld",
    "textarena": "agentcli.worlds.textarena:TextArenaWorld",
    "textworld": "agentcli.worlds.textworld:TextWorldWorld",
    "tool_qa": "agentcli.worlds.tool_qa.world:ToolQaWorld",
    "tunnel": "agentcli.worlds.tunnel.world:TunnelWorld",
    "webshop": "agentcli.worlds.webshop.world:WebshopWorld",
}
"""Name -> "module:Class"."""

SCHEMES = {
    "gym:": "agentcli.environments.gym.world:GymWorld",
    "http://": "agentcli.environments.openenv:OpenEnvWorld",
    "https://": "agentcli.environments.openenv:OpenEnvWorld",
}
"""Prefix of a name -> the class or function that makes the world."""

TOKEN_VARIABLE = "AGENTCLI_WORLD_TOKEN"
"""The environment variable with the secret that an OpenEnv server asks for."""

PARTS = ("card", "tasks", "engine")
"""The members that every world has (protocol.World)."""

REGISTRY = Registry(
    "agentcli.environments",
    WORLDS,
    key="environment.name",
    kind="world",
    in_full=True,
)


def world_names() -> list[str]:
    """Every name that `make_world` knows, sorted."""
    return REGISTRY.names()


def make_world(settings: EnvironmentSettings) -> World:
    """The world that `settings.name` names, made from `settings`.

    Raises UsageError for an unknown or imported world, for options that the world's own types
    refuse, and for a data folder that the world would not read. Raises MissingError if
    its dependencies are not installed.
    """
    kind = _load(settings.name)
    lacking = [name for name in PARTS if not hasattr(kind, name)]
    # The maker behind a scheme may be a function, which has none of these members.
    if lacking and not _scheme_of(settings.name):
        raise UsageError(
            f"environment.name: {settings.name} is not a world: it has no {lacking[0]}; "
            f"give its class {', '.join(PARTS)}"
        )
    try:
        with prints_aside():
            world: World = kind(settings)
    except msgspec.ValidationError as error:
        fault, path = fault_and_path(error)
        raise UsageError(f"environment.options.{path}: {fault}") from error
    except AgentCliError:
        raise
    except Exception as error:
        raise UsageError(
            f"environment.name: {settings.name} cannot be made: {raised(error)}"
        ) from error
    if not isinstance(world.card, Card):
        raise UsageError(f"environment.name: the card of {settings.name} is no Card")
    if settings.data is not None and not world.card.reads_data:
        raise UsageError(
            f"environment.data: {settings.name} reads no data; leave out --data"
        )
    return world


def tasks_of(world: World, name: str, split: str) -> list[Task]:
    """The tasks of a split of the world that `name` made.

    Raises UsageError for an unknown split, and whatever the world raises.
    """
    check_split(world, name, split, "--split")
    try:
        with prints_aside():
            tasks = world.tasks(split)
    except AgentCliError:
        raise
    except ImportError as error:
        raise _missing(name, error, world.card.extra) from error
    except Exception as error:
        raise UsageError(
            f"--split {split}: {name} cannot list its tasks: {raised(error)}"
        ) from error
    _refuse_unclear(tasks, f"--split {split}: {name}")
    return tasks


def check_split(world: World, name: str, split: str, place: str) -> None:
    """Raises UsageError if the world that `name` made has no such split.

    `place` is where the user named it.
    """
    splits = world.card.splits
    if split not in splits:
        raise UsageError(f"{place} {split}: {name} has none; {nearest(split, splits)}")


def _refuse_unclear(tasks: object, place: str) -> None:
    """Raises UsageError unless `tasks` is a list of tasks with distinct ids."""
    if not isinstance(tasks, list) or not all(isinstance(one, Task) for one in tasks):
        raise UsageError(f"{place}: its tasks() must give a list of Task")
    refuse_repeated(tasks, place, UsageError)


def refuse_repeated(
    tasks: Sequence[Task], place: str, error: type[AgentCliError]
) -> None:
    """Raises `error` for two tasks with one id; `place` is where they are listed."""
    ids = set[str]()
    for task in tasks:
        if task.id in ids:
            raise error(
                f"{place}: task {task.id!r} is there twice; give each an id of its own"
            )
        ids.add(task.id)


def raised(error: Exception) -> str:
    """Describes an exception from a plug-in's code, and how to see its traceback."""
    return f"{type(error).__name__}: {error}; AGENTCLI_DEBUG=1 shows where"


def _load(name: str) -> Any:
    """The class that a name stands for. Raises UsageError and MissingError."""
    if name == IMPORTED:
        raise UsageError(
            "environment.name: imported: these trees were rolled out elsewhere, so "
            "nothing here can play on; name a world with --env"
        )
    scheme = _scheme_of(name)
    try:
        return REGISTRY.load(SCHEMES[scheme] if scheme else name)
    except ImportError as error:
        extra = "remote" if scheme.startswith("http") else None
        raise _missing(name, error, extra) from error


def _scheme_of(name: str) -> str:
    """The scheme that a name starts with, such as "gym:"; "" for none."""
    return next((scheme for scheme in SCHEMES if name.startswith(scheme)), "")


def settle(settings: Settings) -> Settings:
    """Fills in the settings whose defaults depend on the world: splits and dialect.

    Raises what `make_world` raises.
    """
    environment = settings.environment
    evaluation = settings.evaluation
    prompt = settings.prompt
    # Making a world can read data or ask a server, so it is left out where it can be.
    if None not in (environment.split, evaluation.split, prompt.style):
        return settings
    card = make_world(environment).card
    replace = msgspec.structs.replace
    return replace(
        settings,
        environment=replace(environment, split=environment.split or card.split),
        evaluation=replace(evaluation, split=evaluation.split or card.evaluation_split),
        prompt=replace(prompt, style=prompt.style or card.dialect),
    )


def make_engine(world: World, name: str) -> Engine:
    """A new engine of the world that `name` made.

    Raises MissingError if its dependencies are not installed.
    """
    try:
        return world.engine()
    except ImportError as error:
        raise _missing(name, error, world.card.extra) from error


def _missing(name: str, error: ImportError, extra: str | None) -> MissingError:
    remedy = f"install {error.name or 'what it imports'}"
    if extra:
        remedy = f"pip install 'agentcli[{extra}]'"
    return MissingError(f"{name}: {error}; {remedy}")
