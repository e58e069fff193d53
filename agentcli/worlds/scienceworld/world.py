"""ScienceWorld: thirty tasks of school science in a house of ten rooms.

The simulator of Wang et al. (2022) runs as it was published, in a Java process of each
engine process. Tasks are listed without it.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from agentcli.environments.cache import cache_folder
from agentcli.environments.protocol import Card, Context, Requisite, options_of
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.scienceworld import tutor
from agentcli.worlds.scienceworld.engine import (
    FORMS,
    ScienceWorldEngine,
    ScienceWorldOptions,
    things_of,
)
from agentcli.worlds.scienceworld.simulator import GoldPaths, Simulator, java_here
from agentcli.worlds.scienceworld.splits import (
    MEANINGS,
    SPLITS,
    tasks_of_split,
)

HOW_TO_ACT = "Actions you may take, with an object for OBJ and a location for LOC:"


class ScienceWorldWorld:
    """A World over the simulator, its Tutor, and Guiding."""

    card = Card(
        name="scienceworld",
        role="You are an expert agent operating in the ScienceWorld environment.",
        splits=tuple(SPLITS),
        evaluation_split="L0",
        meanings=MEANINGS,
        new_kinds=("L2",),
        exploring=("go", "open"),
        best_reward=100.0,
        extra="scienceworld",
    )
    habits = tutor.ScienceWorldHabits
    compact = staticmethod(tutor.compact)
    vocabulary = staticmethod(tutor.vocabulary)
    next = staticmethod(tutor.advise)

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, ScienceWorldOptions)

    @staticmethod
    def requisites(environ: Mapping[str, str]) -> list[Requisite]:
        return [java_here(environ)]

    @staticmethod
    def cache_folder(environ: Mapping[str, str]) -> Path:
        return cache_folder(environ, "scienceworld")

    def tasks(self, split: str) -> list[Task]:
        """The tasks of a split; kind is the task, `variation` its number."""
        return tasks_of_split(split, self.card.name, self.options.prefix)

    def engine(self) -> ScienceWorldEngine:
        """A new engine; all engines of a process share one simulator."""
        return ScienceWorldEngine(self.simulator, self.options, GoldPaths())

    @cached_property
    def simulator(self) -> Simulator:
        return Simulator(self.options.heap_mb)

    def close(self) -> None:
        self.simulator.close()

    @property
    def forms(self) -> str:
        """The papers' 25 templates (DPEPO Figure 17)."""
        lines = [f"- {form}: {effect}" for form, effect in FORMS.items()]
        return "\n".join([HOW_TO_ACT, *lines])

    def sight(self, context: Context) -> str:
        """The things around the agent, and those it carries."""
        things = ", ".join(things_of(context.admissible))
        return f"Objects in sight: {things or 'none'}"
