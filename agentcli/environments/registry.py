"""All worlds by name: the built-in ones, those that installed packages add, and any
class named in full.

An installed package adds a world with an entry point in the group
`agentcli.environments` (name -> "package.module:Class"). A world that is not packaged
is used by writing "package.module:Class" or "folder/file.py:Class" as its name. Worlds
are imported when they are made, so that listing names imports none of them.
"""

import importlib.util
from pathlib import Path
from typing import Any

import msgspec

from agentcli.environments.protocol import Engine, World
from agentcli.errors import MissingError, UsageError
from agentcli.records.settings import EnvironmentSettings, Settings
from agentcli.registry import Registry

WORLDS = {
    "alfworld": "agentcli.environments.alfworld.world:AlfworldWorld",
    "sokoban": "agentcli.environments.sokoban.world:SokobanWorld",
}
"""Name -> "module:Class"."""

REGISTRY = Registry(
    "agentcli.environments", WORLDS, key="environment.name", what="world", in_full=True
)


def world_names() -> list[str]:
    """Every name that `make_world` knows, sorted."""
    return REGISTRY.names()


def make_world(settings: EnvironmentSettings) -> World:
    """The world that `settings.name` names, made from `settings`.

    Raises UsageError for an unknown name and for options that the world's own types
    refuse, MissingError when its dependencies are not installed.
    """
    name = settings.name
    place = REGISTRY.place(name)
    module, _, thing = place.partition(":")
    try:
        world = (
            _from_file(module, thing) if module.endswith(".py") else REGISTRY.load(name)
        )
    except ImportError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise UsageError(
                f"environment.name: {place}: no module {error.name} can be imported"
            ) from error
        raise _missing(name, error, None) from error
    except AttributeError as error:
        raise UsageError(
            f"environment.name: {place}: {module} has no {thing}"
        ) from error
    try:
        return world(settings)
    except msgspec.ValidationError as error:
        what, _, field = str(error).replace("`", "").partition(" - at $")
        raise UsageError(
            f"environment.options{field}: {what[0].lower()}{what[1:]}"
        ) from error


def settle(settings: Settings) -> Settings:
    """The settings with what they leave to the world: its split, its evaluation split
    and its dialect.

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
    """A class of a Python file. Raises UsageError for a file that is not there, and
    what running it raises.
    """
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise UsageError(
            f"environment.name: {path}: no such file; write it as folder/file.py:Class"
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def make_engine(world: World, name: str) -> Engine:
    """A new engine of the world that `name` made. Raises MissingError when its
    dependencies are not installed.
    """
    try:
        return world.engine()
    except ImportError as error:
        raise _missing(name, error, world.card.extra) from error


def _missing(name: str, error: ImportError, extra: str | None) -> MissingError:
    remedy = (
        f"pip install 'agentcli[{extra}]'"
        if extra
        else f"install {error.name or 'what it imports'}"
    )
    return MissingError(f"{name}: {error}; {remedy}")
