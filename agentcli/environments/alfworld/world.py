"""ALFWorld as a World: splits and levels, tasks, where their games lie, and what tiny
policies and experts need.

Two sources stand behind one door: the official data set where one is pointed at, else
the generator. Listing tasks starts no engine and writes nothing; a generated game is
made when it is opened.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.environments.alfworld import dataset, generator
from agentcli.environments.alfworld.draw import draw, parse_name
from agentcli.environments.alfworld.layouts import room_kind
from agentcli.environments.alfworld.options import KINDS, decode_options
from agentcli.environments.alfworld.requisites import generated_games, official_games
from agentcli.environments.alfworld.tutor.habits import Habits
from agentcli.environments.protocol import Advice, Card, Context, Requisite
from agentcli.errors import DataError, UsageError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task

if TYPE_CHECKING:
    from agentcli.environments.alfworld.engine import AlfworldEngine

SPLITS: dict[str, tuple[str, tuple[str, ...]]] = {
    "train": ("train", KINDS),
    "valid_seen": ("valid_seen", KINDS),
    "valid_unseen": ("valid_unseen", KINDS),
    "L0-train": ("train", KINDS),
    "L0": ("valid_seen", KINDS),
    "L1-train": ("train", KINDS),
    "L1": ("valid_unseen", KINDS),
    "L2-train": ("train", KINDS[:4]),
    "L2": ("valid_unseen", KINDS[4:]),
}
"""Name -> (folder of the data set, task types). L0: seen rooms; L1: unseen rooms; L2:
unseen rooms and task types (5 and 6, cool and two objects, after training on 1 to 4).
"""


def attributes_of(identifier: str) -> dict[str, str]:
    """What --where can name besides kind and split, read from a task's id."""
    name = parse_name(identifier.split("/")[-2])
    return {
        "room": room_kind(name.scene),
        "scene": str(name.scene),
        "object": name.object,
        "receptacle": name.receptacle,
    }


class AlfworldWorld:
    """A World and Tutor over ALFWorld games. Cheap to make; raises UsageError and
    DataError for wrong settings.
    """

    card = Card(
        name="alfworld",
        role="You are an expert agent operating in the ALFRED Embodied Environment.",
        splits=tuple(SPLITS),
        split="train",
        evaluation_split="L0",
        best_reward=1.0,
        extra="alfworld",
    )
    habits = Habits

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = decode_options(settings.options)
        self.data = dataset.data_folder(settings.data)
        self._ids: dict[str, tuple[str, ...]] = {}
        self._members: dict[str, frozenset[str]] = {}

    @staticmethod
    def requisites(environ: Mapping[str, str]) -> list[Requisite]:
        """The official games and the generated ones, as this machine has them."""
        return [
            official_games(environ),
            generated_games(generator.cache_folder(environ)),
        ]

    @staticmethod
    def cache_folder(environ: Mapping[str, str]) -> Path:
        """The folder of the generated games."""
        return generator.cache_folder(environ)

    def tasks(self, split: str) -> list[Task]:
        """All tasks of a split, sorted by trial, then folder: the task types lie mixed,
        so a panel's first N hold all.

        `Task.split` is the data set's folder. Raises UsageError for an unknown split,
        DataError for an unreadable folder.
        """
        if split not in SPLITS:
            raise UsageError(f"--split {split}: alfworld has {', '.join(SPLITS)}")
        folder, kinds = SPLITS[split]
        tasks = []
        for identifier in self._sorted_ids(folder):
            kind = identifier.split("/", 2)[1].split("-", 1)[0]
            if kind in kinds:
                tasks.append(
                    Task(
                        id=identifier,
                        world=self.card.name,
                        split=folder,
                        kind=kind,
                        attributes=attributes_of(identifier),
                    )
                )
        return tasks

    def _sorted_ids(self, folder: str) -> tuple[str, ...]:
        if folder not in self._ids:
            ids = (
                dataset.list_games(self.data, folder)
                if self.data
                else draw(self.options, folder)
            )
            self._ids[folder] = tuple(
                sorted(
                    ids,
                    key=lambda identifier: (identifier.rsplit("/", 1)[1], identifier),
                )
            )
        return self._ids[folder]

    def locate(self, task: Task) -> Path:
        """The task's game.tw-pddl; a generated one is made if it is not in the cache
        yet.

        Raises DataError for a task that these settings do not have (a panel that other
        settings wrote).
        """
        folder = task.id.split("/", 1)[0]
        if folder in dict(SPLITS.values()) and folder not in self._members:
            self._members[folder] = frozenset(self._sorted_ids(folder))
        if task.id not in self._members.get(folder, frozenset()):
            source = (
                str(self.data)
                if self.data
                else "the generator under these environment.options"
            )
            raise DataError(
                f"task {task.id}: {source} has no such game; use the settings that "
                "its panel was written with"
            )
        if self.data:
            return self.data / dataset.LAYOUT / task.id / "game.tw-pddl"
        return generator.make(task.id, self.options, generator.cache_root(self.options))

    def engine(self) -> "AlfworldEngine":
        """A live engine; imports textworld."""
        from agentcli.environments.alfworld.engine import AlfworldEngine

        cache = generator.cache_root(self.options).parent / "translations"
        return AlfworldEngine(
            locate=self.locate, backend=self.options.engine, cache=cache
        )

    def compact(self, context: Context) -> str:
        """A prompt of 50 to 60 words from the agent's own past and what is admissible
        now (see compact.py).
        """
        from agentcli.environments.alfworld.tutor.compact import compact

        return compact(context)

    def vocabulary(self) -> list[str]:
        """Every receptacle and object name these settings can show, as whole tokens,
        sorted.
        """
        from agentcli.environments.alfworld.tutor.vocabulary import entities

        return entities(self.options, self.data)

    def next(self, context: Context, seed: int, habits: Habits) -> Advice:
        """The searching expert's next move (see search.py)."""
        from agentcli.environments.alfworld.tutor.search import search

        return search(context, seed, habits)
