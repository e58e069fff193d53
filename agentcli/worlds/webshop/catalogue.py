"""A catalogue: products, the search engine over them, and the goals they give.

A generated catalogue and the small data set are held in memory, once in a process. The
large one lies on disk: products a line each, and the index. Reading 1.18 million
products takes minutes and gigabytes, so the first command that needs them writes what
pages and search need into the cache, as one folder that is renamed into place when it
is complete. After that a process opens it at once, and reads only what is looked at.
"""

import bisect
import itertools
import os
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property, lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from agentcli.environments.cache import cache_folder
from agentcli.records.scratch import publish
from agentcli.worlds.bm25 import Bm25Index, lucene_words
from agentcli.worlds.row_files import LinesOnDisk
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
        self._index = cache(engine)
        self._goals = goals

    @cached_property
    def order(self) -> list[int]:
        """The goals' numbers, shuffled as WebShop shuffles them."""
        order = list(range(self._ends[-1] if self._ends else 0))
        # The same generator and seed as WebShop, so goal 0 here is its goal 0.
        random.Random(SHUFFLE).shuffle(order)
        return order

    def asker(self, goal: int) -> Asker:
        """The product behind the goal at a place of the order."""
        return self._askers[bisect.bisect_right(self._ends, self.order[goal])]

    @cached_property
    def _ends(self) -> list[int]:
        """For each asker, the goals of it and of those before it."""
        return list(itertools.accumulate(asker.goals for asker in self._askers))

    def _search(self, keywords: str) -> tuple[int, ...]:
        ranked = self._index().best(lucene_words(keywords), HITS, LONGEST_QUERY)
        return tuple(place for place, _ in ranked)

    def _goal(self, goal: int) -> ShopGoal:
        asker = self.asker(goal)
        place = bisect.bisect_right(self._ends, self.order[goal])
        number = self.order[goal] - (self._ends[place] - asker.goals)
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


VERSION = 1
"""Increase when the same files make another folder."""
PRODUCTS, OFFSETS = "products.jsonl", "offsets.npy"
ASKERS, INDEX = "askers.json", "bm25"


def folder_of(sources: Sequence[Path], goals: str) -> Path:
    """The cache's folder for these files, as they are now."""
    # Size and time stand for the content: reading gigabytes for a digest is too slow.
    parts = [str(VERSION), goals]
    for path in sources:
        status = path.stat()
        parts += [str(path.resolve()), str(status.st_size), str(status.st_mtime_ns)]
    digest = sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache_folder(os.environ, "webshop") / digest


def open_shelf(folder: Path, goals: str) -> Catalogue:
    """The catalogue that `fill` wrote."""
    askers = msgspec.json.decode((folder / ASKERS).read_bytes(), type=list[Asker])
    engine = partial(Bm25Index.load, folder / INDEX)
    # The system keeps in memory what is looked at often; so does the cache here.
    decode = lru_cache(maxsize=4096)(msgspec.json.Decoder(Product).decode)
    offsets = np.load(folder / OFFSETS, mmap_mode="r")
    products = LinesOnDisk((folder / PRODUCTS).open("rb"), offsets, decode)
    return Catalogue(products, askers, engine, goals)


def fill(folder: Path, products: Iterable[Product], goals: str) -> None:
    """Writes a folder, whole or not at all. Passes on what `products` raises."""
    write = partial(_write, products=products, goals=goals)
    publish(folder, write, folder.parent)


def _write(folder: Path, products: Iterable[Product], goals: str) -> None:
    offsets = [0]
    askers = []

    def indexed_texts() -> Iterable[str]:
        """The texts for the index; writes each product on the way."""
        with (folder / PRODUCTS).open("wb") as file:
            for place, product in enumerate(products):
                length = file.write(msgspec.json.encode(product))
                offsets.append(offsets[-1] + length)
                count = goals_of(product, goals)
                if count:
                    askers.append(Asker(place, product.asin, count, product.category))
                yield product.indexed_text

    Bm25Index.over(map(lucene_words, indexed_texts())).save(folder / INDEX)
    # int64: the file of all products may be larger than 4 GiB.
    np.save(folder / OFFSETS, np.array(offsets, dtype=np.int64))
    (folder / ASKERS).write_bytes(msgspec.json.encode(askers))
