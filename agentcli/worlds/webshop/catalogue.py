"""A catalogue: products, the search engine over them, and the goals they give.

A generated catalogue and the small data set are held in memory, once in a process. The
large one lies on disk (shelf.py), and only what is looked at is read.
"""

import bisect
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from agentcli.worlds.bm25 import Bm25Index, lucene_words
from agentcli.worlds.webshop.goals import ShopGoal, goal_of, goals_of
from agentcli.worlds.webshop.products import Product

SHUFFLE = 233
"""WebShop's seed of the order of goals."""
HITS = 50
"""Most hits of a search."""
LONGEST_QUERY = 64
"""Words of a query that count."""


class Asker(NamedTuple):
    """A product that gives goals."""

    place: int
    """In the catalogue."""
    asin: str
    goals: int
    category: str


class Catalogue:
    """Products by their places, what a search finds, and the goals in their order."""

    def __init__(
        self,
        products: Sequence[Product],
        askers: Sequence[Asker],
        engine: Callable[[], Bm25Index],
        goals: str,
    ) -> None:
        self.products = products
        self.search = lru_cache(maxsize=4096)(self._search)
        self.goal = lru_cache(maxsize=1024)(self._goal)
        self._askers = askers
        self._engine = engine
        self._goals = goals

    @cached_property
    def order(self) -> list[int]:
        """The goals' numbers, shuffled as WebShop shuffles them."""
        order = list(range(self._ends[-1] if self._ends else 0))
        random.Random(SHUFFLE).shuffle(order)
        return order

    def asker(self, goal: int) -> Asker:
        """The product behind the goal at a place of the order."""
        return self._askers[bisect.bisect_right(self._ends, self.order[goal])]

    @cached_property
    def _ends(self) -> list[int]:
        """For each asker, the goals of it and of those before it."""
        return list(itertools.accumulate(asker.goals for asker in self._askers))

    @cached_property
    def _index(self) -> Bm25Index:
        return self._engine()

    def _search(self, keywords: str) -> tuple[int, ...]:
        words = self._index.known(lucene_words(keywords))
        ranked = self._index.best(words[:LONGEST_QUERY], HITS)
        return tuple(place for place, _ in ranked)

    def _goal(self, goal: int) -> ShopGoal:
        asker = self.asker(goal)
        end = self._ends[bisect.bisect_right(self._ends, self.order[goal])]
        number = self.order[goal] - (end - asker.goals)
        return goal_of(self.products[asker.place], self._goals, number)


def askers_of(products: Iterable[Product], goals: str) -> list[Asker]:
    """The products that give goals."""
    askers = []
    for place, product in enumerate(products):
        count = goals_of(product, goals)
        if count:
            askers.append(Asker(place, product.asin, count, product.category))
    return askers


def in_memory(products: Sequence[Product], goals: str) -> Catalogue:
    """A catalogue whose index is made when somebody searches."""

    def engine() -> Bm25Index:
        return Bm25Index.over(
            lucene_words(product.indexed_text) for product in products
        )

    return Catalogue(products, askers_of(products, goals), engine, goals)
