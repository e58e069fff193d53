"""WebShop: find the product that an instruction asks for, choose its options, buy it.

The files of WebShop are read unchanged where --data names their folder; else the
catalogue is generated in the same schema. The reward is between 0 and 1 and comes with
the purchase; success is reward 1.
"""

from collections.abc import Mapping
from pathlib import Path

from agentcli.environments.cache import cache_folder
from agentcli.environments.protocol import PLACE, Card, Requisite, options_of
from agentcli.errors import UsageError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.webshop.engine import WebshopEngine
from agentcli.worlds.webshop.generator import WebshopOptions
from agentcli.worlds.webshop.source import GoalSource, real_files
from agentcli.worlds.webshop.tutor import WebshopHabits, advise, compact, names

SPLITS = ("train", "test")


class WebshopWorld:
    """The World and its Tutor."""

    card = Card(
        name="webshop",
        role=(
            "You are an expert autonomous agent operating in the WebShop e-commerce "
            "environment."
        ),
        splits=SPLITS,
        evaluation_split="test",
        meanings={"test": "goals 0 to 499 of WebShop's order; train has the rest"},
        reads_data=True,
        extra="webshop",
    )
    habits = WebshopHabits
    compact = staticmethod(compact)
    next = staticmethod(advise)

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, WebshopOptions)
        self._source = GoalSource(self.options, settings.data)

    def tasks(self, split: str) -> list[Task]:
        """The goals of a split, in WebShop's order; kind is the product's category."""
        count = self._source.goals
        tests = min(self.options.tests, count)
        numbers = range(tests) if split == "test" else range(tests, count)
        return [self._source.task(number, split, self.card.name) for number in numbers]

    def engine(self) -> WebshopEngine:
        """A new engine; all engines of a process share one catalogue."""
        # An ImportError of what they need is due here, not in the middle of a rollout.
        import bm25s  # noqa: F401
        import rapidfuzz  # noqa: F401
        import Stemmer  # noqa: F401

        return WebshopEngine(self._source.catalogue, self._source.number)

    def vocabulary(self) -> list[str]:
        """Asins, options and attributes, as whole tokens."""
        if self.options.size == "all":
            raise UsageError(
                f"{PLACE}.size: a million products are too many for the words of a "
                "tiny policy; choose small"
            )
        return names(self._source.catalogue.products)

    @staticmethod
    def requisites(environ: Mapping[str, str]) -> list[Requisite]:
        """WebShop's files, where the environment names their folder."""
        return [real_files(environ)]

    @staticmethod
    def cache_folder(environ: Mapping[str, str]) -> Path:
        """The folder of large catalogues."""
        return cache_folder(environ, "webshop")
