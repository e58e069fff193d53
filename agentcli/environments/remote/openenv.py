"""A world on any other OpenEnv server, which has only reset, step and state.

Tasks are seeds (environments/seeded.py). A server that takes no seed must begin all
episodes in the same way: `env check` reports whether it does.
"""

from typing import Any

import msgspec

from agentcli.environments.options import options_of
from agentcli.environments.protocol import Card, Observation, Start
from agentcli.environments.remote.client import Caller, Connection
from agentcli.environments.seeded import (
    Play,
    SeededOptions,
    seed_of,
    seeded_card,
    seeded_tasks,
)
from agentcli.errors import EngineError, MissingError, UsageError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.registry import nearest

BOOKKEEPING = ("metadata", "done", "reward")
"""Fields of OpenEnv's own actions and observations."""


class OpenEnvOptions(SeededOptions, kw_only=True, frozen=True):
    """environment.options of an OpenEnv server."""

    action: str | None = None
    """The field of its action that the agent writes. None: the only one that has no
    default.
    """
    text: str | None = None
    """The field of its observation that the agent reads. None: all of them."""
    reset: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further arguments of its reset."""


class OpenEnvSchema(msgspec.Struct):
    """The answer to GET /schema: JSON schemas."""

    action: dict[str, Any]
    observation: dict[str, Any]


class OpenEnvMetadata(msgspec.Struct):
    """The answer to GET /metadata."""

    name: str


class OpenEnvStep(msgspec.Struct):
    """The answer to reset and step."""

    observation: dict[str, Any]
    reward: float | None = None
    done: bool = False


class OpenEnvWorld:
    """The world at an address."""

    def __init__(self, settings: EnvironmentSettings, caller: Caller) -> None:
        self._url = settings.name
        schema = caller.get("/schema", OpenEnvSchema)
        if schema is None:
            raise MissingError(
                f"{self._url}: what answers there is no world: it has no /world and no "
                "/schema; start one with: agentcli env serve NAME"
            )
        self.options = options_of(settings, OpenEnvOptions)
        about = caller.get("/metadata", OpenEnvMetadata)
        self._name = about.name if about else "openenv"
        self._field = _chosen(schema.action, self.options.action, self._url)
        fields = schema.observation.get("properties", {})
        text = self.options.text
        if text is not None and text not in fields:
            hint = nearest(text, fields)
            raise UsageError(
                f"environment.options.text: the observations of {self._url} have no "
                f"{text}; {hint}"
            )
        kind = schema.action["properties"][self._field].get("type")
        self._is_number = kind in ("integer", "number")

    @property
    def card(self) -> Card:
        """Its facts, as far as the options say them."""
        return seeded_card(self._name, self.options)

    def tasks(self, split: str) -> list[Task]:
        """The seeds of a split."""
        return seeded_tasks(self._name, split, self.options)

    def engine(self) -> "OpenEnvEngine":
        """A new session."""
        return OpenEnvEngine(self._url, self.options, self._field, self._is_number)


class OpenEnvEngine:
    """One session. States are restored by replaying the actions."""

    def __init__(
        self, url: str, options: OpenEnvOptions, field: str, is_number: bool
    ) -> None:
        self._connection = Connection(url)
        self._options = options
        self._field = field
        self._is_number = is_number
        names = options.actions or ()
        self._values = {name: number for number, name in enumerate(names)}

    def start(self, task: Task) -> Start:
        """Resets the session with the task's seed."""
        seed = seed_of(task)
        data = {**self._options.reset, "seed": seed}
        answer = self._connection.ask("reset", data, "observation", OpenEnvStep)
        self._play = Play(self._options, seed)
        first = self._play.begin(self._text(answer), tuple(self._values))
        return Start(instruction=self._options.instruction, observation=first)

    def step(self, action: str) -> Observation:
        """Writes the action into its field; one that is no number changes nothing."""
        written = action.strip()
        value = self._value(written)
        if value is None:
            return self._play.refuse()
        data = {self._field: value}
        answer = self._connection.ask("step", data, "observation", OpenEnvStep)
        return self._play.advance(
            written,
            self._text(answer),
            tuple(self._values),
            answer.reward or 0.0,
            "terminated" if answer.done else None,
        )

    def close(self) -> None:
        """Ends the session."""
        self._connection.close()

    def _value(self, written: str) -> str | int | None:
        if self._values:
            number = self._values.get(written)
            return number if self._is_number or number is None else written
        if not self._is_number:
            return written
        return int(written) if written.lstrip("-").isdecimal() else None

    def _text(self, answer: OpenEnvStep) -> str:
        shown = self._options.text
        if shown is not None:
            if shown not in answer.observation:
                raise EngineError(f"its observation has no {shown}")
            return _plain(answer.observation[shown])
        lines = []
        for name, value in answer.observation.items():
            if name not in BOOKKEEPING:
                lines.append(f"{name}: {_plain(value)}")
        return "\n".join(lines)


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _chosen(schema: dict[str, Any], name: str | None, url: str) -> str:
    """The field of an action that the agent writes.

    Raises UsageError where the options must name it.
    """
    properties: dict[str, Any] = schema.get("properties", {})
    fields = [key for key in properties if key not in BOOKKEEPING]
    if name is not None:
        if name in fields:
            return name
        hint = nearest(name, fields)
        raise UsageError(
            f"environment.options.action: the actions of {url} have no {name}; {hint}"
        )
    needed = [key for key in fields if key in schema.get("required", fields)]
    if len(needed) == 1:
        return needed[0]
    raise UsageError(
        f"{url}: its actions have the fields {', '.join(fields) or 'none'}; say which "
        "one the agent writes: environment.options.action=FIELD"
    )
