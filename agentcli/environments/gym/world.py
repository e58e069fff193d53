"""`--env gym:ID`: any environment of Gymnasium with discrete or written actions.

The ID is what gymnasium.make takes, `package.module:ID` included: the module registers
it. Tasks are seeds (environments/seeded.py).
"""

import importlib
from typing import Any

import msgspec

from agentcli.environments.protocol import Card, Context, Engine, options_of
from agentcli.environments.seeded import (
    SeededOptions,
    moves_of,
    seeded_card,
    seeded_tasks,
)
from agentcli.errors import MissingError, UsageError
from agentcli.records.faults import one_line
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.registry import Registry

PREFIX = "gym:"
REMEDY = "pip install 'agentcli[gym]'"


class GymWorld:
    """The environments of one ID."""

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, GymOptions)
        self._name = settings.name
        self._id = settings.name.removeprefix(PREFIX)

    @property
    def card(self) -> Card:
        return seeded_card(self._name, self.options)

    def tasks(self, split: str) -> list[Task]:
        """The seeds of a split.

        Raises MissingError without Gymnasium, UsageError for an ID that it has not.
        """
        self._check_id()
        return seeded_tasks(self._name, split, self.options.seeds)

    def engine(self) -> Engine:
        """A new environment. Raises UsageError for arguments that it does not take."""
        environment = self._environment()
        # Without Gymnasium this file must still load, to say what to install.
        from agentcli.environments.gym.engine import CopyingGymEngine, GymEngine

        kind = CopyingGymEngine if self.options.snapshots else GymEngine
        describe = self._function("text")
        solve = self._function("plan")
        return kind(environment, self._name, self.options, describe, solve)

    def _function(self, option: str) -> Any:
        """The function that an option names; None without one."""
        name = getattr(self.options, option)
        if name is None:
            return None
        key = f"environment.options.{option}"
        return Registry("none", {}, key=key, kind="function", in_full=True).load(name)

    def compact(self, context: Context) -> str:
        """What is seen, and the last action."""
        action, text = moves_of(context)[-1]
        return f"{text}\nlast {action or 'nothing'}"

    def vocabulary(self) -> list[str]:
        return []

    def _environment(self) -> Any:
        gymnasium = self._check_id()
        arguments = {"disable_env_checker": True, **self.options.kwargs}
        try:
            return gymnasium.make(self._id, **arguments)
        # The constructor is anybody's code.
        except Exception as error:
            raise UsageError(
                f"{self._name} cannot be made with environment.options.kwargs "
                f"{self.options.kwargs}: {_line(error)}; mend them"
            ) from error

    def _check_id(self) -> Any:
        """Gymnasium, which knows the ID."""
        module, _, name = self._id.rpartition(":")
        try:
            gymnasium = importlib.import_module("gymnasium")
            if module:
                importlib.import_module(module)
        except ImportError as error:
            remedy = f"install the package of {module}"
            if error.name == "gymnasium":
                remedy = REMEDY
            raise MissingError(f"{self._name}: {error}; {remedy}") from error
        try:
            gymnasium.spec(name)
        except gymnasium.error.Error as error:
            raise UsageError(
                f"environment.name: {self._name}: {_line(error)}; "
                "gymnasium.pprint_registry() lists them"
            ) from error
        return gymnasium


def _line(error: Exception) -> str:
    """What was raised, in one line."""
    return f"{type(error).__name__}: {one_line(error)}"


class GymOptions(SeededOptions, kw_only=True, frozen=True):
    """What is played, and how it is shown."""

    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    """Arguments of gymnasium.make, for instance {map_name: 8x8, render_mode: ansi}.
    With the render mode ansi the text holds the rendering too.
    """
    text: str | None = None
    """FILE.py:NAME or package.module:NAME of a function that turns an observation and
    its info into text. None: numbers and texts of the observation space.
    """
    plan: str | None = None
    """A function likewise, that gets a copy of the environment and returns names of
    actions that win from there: the policy `expert`. None: there is no such policy.
    """
    snapshots: bool = False
    """Forks continue a deep copy of the environment. The first start tests whether
    copies are exact. Off: the actions are replayed, which is cheaper if steps are
    quick.
    """
