"""The toy world with far too much to say in one place.

Use it as `EnvironmentSettings(name="wordy_world:WordyWorld", options={"place": ...})`: its instruction, or after "look" the
text, the actions, a state key, or an error, or its plan.
"""

from typing import Any, Literal

import msgspec
from agentcli.environments.protocol import Observation, Start
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from toy_world import ToyEngine, ToyOptions, ToyWorld

WORDS = "and so on " * 200_000
"""2 MB."""


class WordyOptions(ToyOptions, kw_only=True):
    """environment.options of the wordy world."""

    place: Literal["instruction", "text", "actions", "state", "canonical", "plan", "error"]


class WordyWorld(ToyWorld):
    """Corridors about which much is said."""

    options: WordyOptions

    def __init__(self, settings: EnvironmentSettings) -> None:
        super().__init__(msgspec.structs.replace(settings, options={}))
        self.options = msgspec.convert(settings.options, WordyOptions)

    def engine(self) -> "WordyEngine":
        return WordyEngine(self)


class WordyEngine(ToyEngine):
    """Says it."""

    world: WordyWorld

    def start(self, task: Task) -> Start:
        start = super().start(task)
        return msgspec.structs.replace(start, instruction=WORDS) if self.world.options.place == "instruction" else start

    def step(self, action: str) -> Observation:
        place = self.world.options.place
        seen = super().step(action)
        if action != "look" or place in ("instruction", "plan"):
            return seen
        if place == "error":
            raise ValueError(WORDS)
        said: Any = tuple(WORDS.split()) if place == "actions" else WORDS
        return msgspec.structs.replace(seen, **{place: said})

    def plan(self) -> list[str]:
        return WORDS.split() if self.world.options.place == "plan" else super().plan()
