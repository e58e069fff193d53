"""`--env http://HOST:PORT`: a world that a server plays.

A server of `agentcli env serve` says what its world has: then the world here has it
too, and grows the same trees. Any other server of OpenEnv has reset, step and state
(`openenv.py`).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from agentcli.environments.protocol import Advice, Card, Context, Engine, World
from agentcli.environments.remote import wire
from agentcli.environments.remote.client import (
    HTTP_SECONDS,
    Caller,
    refuse_bad_url,
)
from agentcli.environments.remote.engine import PlanningRemoteEngine, RemoteEngine
from agentcli.environments.remote.openenv import OpenEnvWorld
from agentcli.errors import MissingError, UsageError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.version import __version__


def open_world(settings: EnvironmentSettings) -> World:
    """The world that the server at `settings.name` plays.

    Raises MissingError where nobody answers, and where the server speaks another
    version; UsageError for options that are the server's own to set.
    """
    refuse_bad_url(settings.name)
    caller = Caller(settings.name, max(HTTP_SECONDS, settings.deadline_seconds))
    served = caller.get("/world", wire.ServedWorld)
    if served is None:
        return OpenEnvWorld(settings, caller)
    if served.protocol != wire.PROTOCOL:
        raise MissingError(
            f"{settings.name}: its server speaks version {served.protocol} of the "
            f"protocol (release {served.version}), this is version {wire.PROTOCOL} "
            f"(release {__version__}); install the same release on both sides"
        )
    key = next(iter(settings.options), None)
    if key is not None or settings.data is not None:
        place = "data" if key is None else f"options.{key}"
        raise UsageError(
            f"environment.{place}: the world at {settings.name} is made by its server; "
            "set it there: agentcli env serve NAME"
        )
    parts: list[type] = []
    if served.forms is not None:
        parts.append(RemoteGuide)
    if served.tools is not None:
        parts.append(RemoteToolbox)
    if served.vocabulary is not None:
        parts.append(RemoteTutor)
    kind = type("RemoteWorld", (*parts, RemoteWorld), {})
    world: World = kind(settings.name, served, caller)
    return world


class RemoteWorld:
    """A served world."""

    def __init__(self, url: str, served: wire.ServedWorld, caller: Caller) -> None:
        self._url = url
        self._served = served
        self._caller = caller

    @property
    def card(self) -> Card:
        """The served world's own."""
        return self._served.card

    def tasks(self, split: str) -> list[Task]:
        """The served world's own."""
        return self._caller.get("/tasks", list[Task], split=split) or []

    def engine(self) -> Engine:
        """A new session."""
        kind = PlanningRemoteEngine if self._served.solvable else RemoteEngine
        return kind(self._url, self.card.name)


class RemoteGuide(RemoteWorld):
    """A served world that is Guiding."""

    @property
    def forms(self) -> str:
        """How actions are written."""
        return self._served.forms or ""

    def sight(self, context: Context) -> str:
        """What an action can be about now."""
        return self._caller.post("/guide/sight", context, str)


class RemoteToolbox(RemoteWorld):
    """A served world that is a Toolbox."""

    @property
    def tools(self) -> Mapping[str, str]:
        """One line about each tool."""
        return self._served.tools or {}


class RemoteTutor(RemoteWorld):
    """A served world that is a Tutor."""

    @property
    def habits(self) -> type[msgspec.Struct]:
        """The habits of the served expert; the server checks their values."""
        fields = [(habit.name, float, habit.default) for habit in self._served.habits]
        return msgspec.defstruct("RemoteHabits", fields, frozen=True, kw_only=True)

    def compact(self, context: Context) -> str:
        """A short prompt with all that a decision needs."""
        return self._caller.post("/tutor/compact", context, str)

    def vocabulary(self) -> list[str]:
        """Entity names that a tiny tokenizer must hold."""
        return self._served.vocabulary or []

    def next(self, context: Context, seed: int, habits: Any) -> Advice:
        """The searching expert's move."""
        data = wire.NextData(context, seed, msgspec.structs.asdict(habits))
        return self._caller.post("/tutor/next", data, Advice)
