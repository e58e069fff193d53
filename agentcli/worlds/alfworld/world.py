"""ALFWorld as a World and Tutor: splits and levels, tasks, where their games lie.

Games come from the official data set if its folder is given, else from the generator.
Listing tasks starts no engine and writes nothing; a generated game is made when it is
opened.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.environments.cache import cache_folder
from agentcli.environments.protocol import Card, Requisite, options_of
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.alfworld import dataset, generator
from agentcli.worlds.alfworld.dataset import generated_games, official_games
from agentcli.worlds.alfworld.draw import draw, name_of, room_kind
from agentcli.worlds.alfworld.options import KINDS, OFFICIAL_GAMES, AlfworldOptions
from agentcli.worlds.alfworld.placeholders import own, placeholders, typed
from agentcli.worlds.alfworld.search import AlfworldHabits, compact, entities, search
from agentcli.worlds.generated import foreign_task

if TYPE_CHECKING:
    from agentcli.worlds.alfworld.engine import AlfworldEngine

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
MEANINGS = {
    "valid_seen": "the data set's name of L0",
    "valid_unseen": "the data set's name of L1",
    "L0-train": "the same as train",
    "L1-train": "the same as train",
    "L0": "known rooms, new games",
    "L1": "rooms that were not trained in",
    "L2": "the part of L1 whose kinds L2-train lacks",
    "L2-train": "train without the kinds of L2",
}


class AlfworldWorld:
    """A World and Tutor over ALFWorld games.

    It is cheap to make; raises UsageError and DataError for wrong settings.
    """

    card = Card(
        name="alfworld",
        role="You are an expert agent operating in the ALFRED Embodied Environment.",
        splits=tuple(SPLITS),
        evaluation_split="L0",
        meanings=MEANINGS,
        new_kinds=("L2",),
        exploring=("go", "open"),
        reads_data=True,
        extra="alfworld",
    )
    habits = AlfworldHabits
    compact = staticmethod(compact)
    next = staticmethod(search)
    typed = staticmethod(typed)
    own = staticmethod(own)
    placeholders = staticmethod(placeholders)

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, AlfworldOptions)
        self.data = dataset.data_folder(settings.data)
        # A cache on the method itself would keep every world alive.
        self._list = cache(self._ids)

    @staticmethod
    def requisites(environ: Mapping[str, str]) -> list[Requisite]:
        return [
            official_games(environ),
            generated_games(cache_folder(environ, "alfworld")),
        ]

    @staticmethod
    def cache_folder(environ: Mapping[str, str]) -> Path:
        return cache_folder(environ, "alfworld")

    def tasks(self, split: str) -> list[Task]:
        """All tasks of a split, sorted by trial, then folder.

        So the task types lie mixed, and a panel's first N hold all. `Task.split` is the
        data set's folder. Raises DataError for an unreadable folder.
        """
        folder, kinds = SPLITS[split]
        tasks = [self._task(folder, identifier) for identifier in self._list(folder)]
        return [task for task in tasks if task.kind in kinds]

    def _task(self, folder: str, identifier: str) -> Task:
        name = name_of(identifier)
        return Task(
            id=identifier,
            world=self.card.name,
            split=folder,
            kind=name.kind,
            attributes={
                "room": room_kind(name.scene),
                "scene": str(name.scene),
                "object": name.object,
                "receptacle": name.receptacle,
            },
        )

    def _ids(self, folder: str) -> dict[str, None]:
        """The games of a folder, in the order of its tasks; a dict, to look one up."""
        if self.data:
            ids = list(dataset.list_games(self.data, folder))
        else:
            ids = draw(self.options, folder)
        ids.sort(key=lambda identifier: (identifier.rsplit("/", 1)[1], identifier))
        return dict.fromkeys(ids)

    def locate(self, task: Task) -> Path:
        """The task's game.tw-pddl; a generated one is made if the cache lacks it.

        Raises DataError for a task that these settings do not have, for instance from a
        panel that other settings wrote.
        """
        folder = task.id.split("/", 1)[0]
        if folder not in OFFICIAL_GAMES or task.id not in self._list(folder):
            raise foreign_task(task)
        if self.data:
            return dataset.game_file(self.data, task.id)
        return generator.make(task.id, self.options, generator.cache_root(self.options))

    def engine(self) -> "AlfworldEngine":
        """A live engine; imports textworld."""
        from agentcli.worlds.alfworld.engine import FastEngine, StockEngine

        if self.options.engine == "stock":
            return StockEngine(self.locate)
        # Beside the games, not below their digest: official games are translated, too.
        cache = generator.cache_root(self.options).parent / "translations"
        return FastEngine(self.locate, cache)

    def vocabulary(self) -> list[str]:
        """Every receptacle and object name these settings can show, sorted."""
        return entities(self.options, self.data)
