"""All worlds by name: built-in ones, those of installed packages, any class in full.

An installed package adds a world with an entry point in the group
`agentcli.environments` (name -> "package.module:Class"). A world that is not packaged
is used by writing "package.module:Class" or "folder/file.py:Class" as its name. Worlds
are imported when they are made, so that listing names imports none of them.
"""

import importlib.util
from pathlib import Path
from typing import Any

import msgspec

from agentcli.environments.options import refusal_of
from agentcli.environments.protocol import Engine, World
from agentcli.errors import MissingError, UsageError
from agentcli.records.settings import EnvironmentSettings, Settings
from agentcli.registry import Registry

WORLDS = {
    "alfworld": "agentcli.environments.alfworld.world:AlfworldWorld",
    "sokoban": "agentcli.environments.sokoban.world:SokobanWorld",
    "tool_qa": "agentcli.environments.tool_qa.world:ToolQaWorld",
}
"""Name -> "module:Class"."""

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

    Raises UsageError for an unknown name and for options that the world's own types
    refuse, MissingError when its dependencies are not installed.
    """
    kind = _load(settings.name)
    try:
        world: World = kind(settings)
    except msgspec.ValidationError as error:
        raise refusal_of(error) from error
    return world


def _load(name: str) -> Any:
    """The class that a name stands for. Raises UsageError and MissingError."""
    place = REGISTRY.place(name)
    module, _, attribute = place.partition(":")
    try:
        if module.endswith(".py"):
            return _from_file(module, attribute)
        return REGISTRY.load(name)
    except ImportError as error:
        # The world's own module is a slip of the pen; another one is to be installed.
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise UsageError(
                f"environment.name: {place}: no module {error.name} can be imported"
            ) from error
        raise _missing(name, error, None) from error
    except AttributeError as error:
        raise UsageError(
            f"environment.name: {place}: {module} has no {attribute}"
        ) from error


def settle(settings: Settings) -> Settings:
    """Fills in what the settings leave to the world: its splits and its dialect.

    Raises what `make_world` raises.
    """
    environment = settings.environment
    evaluation = settings.evaluation
    prompt = settings.prompt
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


def _from_file(path: str, name: str) -> Any:
    """A class of a Python file. Raises UsageError, and what running the file raises."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise UsageError(
            f"environment.name: {path}: no such file; write it as folder/file.py:Class"
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def make_engine(world: World, name: str) -> Engine:
    """A new engine of the world that `name` made.

    Raises MissingError when its dependencies are not installed.
    """
    try:
        return world.engine()
    except ImportError as error:
        raise _missing(name, error, world.card.extra) from error


def _missing(
    name: str,
    error: ImportError,
    extra: str | None,
) -> MissingError:
    remedy = f"install {error.name or 'what it imports'}"
    if extra:
        remedy = f"pip install 'agentcli[{extra}]'"
    return MissingError(f"{name}: {error}; {remedy}")
