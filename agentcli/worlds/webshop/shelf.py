"""The large catalogue on disk: products a line each, and the index, made once.

Reading 1.18 million products takes minutes and gigabytes. So the first command that
needs them writes what pages and search need into the cache, as one folder that is
renamed into place when it is complete. After that a process opens it at once, and the
system keeps in memory what is looked at.
"""

import mmap
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import overload

import msgspec
import numpy as np

from agentcli.environments.cache import cache_folder
from agentcli.records.scratch import publish
from agentcli.worlds.bm25 import Bm25Index, lucene_words
from agentcli.worlds.webshop.catalogue import Asker, Catalogue
from agentcli.worlds.webshop.goals import goals_of
from agentcli.worlds.webshop.products import Product

VERSION = 1
"""Raised whenever the same files would make another folder."""
PRODUCTS, OFFSETS, ASKERS, INDEX = (
    "products.jsonl",
    "offsets.npy",
    "askers.json",
    "bm25",
)


class Shelf(Sequence[Product]):
    """Products that are read from disk when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._offsets = np.load(folder / OFFSETS, mmap_mode="r")
        with (folder / PRODUCTS).open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._product = lru_cache(maxsize=4096)(self._read)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, place: int) -> Product: ...
    @overload
    def __getitem__(self, place: slice) -> list[Product]: ...
    def __getitem__(self, place: int | slice) -> Product | list[Product]:
        if isinstance(place, slice):
            return [self._product(one) for one in range(*place.indices(len(self)))]
        return self._product(place)

    def _read(self, place: int) -> Product:
        begin, end = self._offsets[place : place + 2]
        return _DECODER.decode(self._bytes[begin:end])


_DECODER = msgspec.json.Decoder(Product)


def folder_of(sources: Sequence[Path], goals: str) -> Path:
    """The cache's folder for these files, as they are now."""
    parts = [str(VERSION), goals]
    for path in sources:
        status = path.stat()
        parts += [str(path.resolve()), str(status.st_size), str(status.st_mtime_ns)]
    digest = sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache_folder(os.environ, "webshop") / digest


def open_shelf(folder: Path, goals: str) -> Catalogue:
    """The catalogue that `fill` wrote."""
    askers = msgspec.json.decode((folder / ASKERS).read_bytes(), type=list[Asker])

    def engine() -> Bm25Index:
        return Bm25Index.load(folder / INDEX)

    return Catalogue(Shelf(folder), askers, engine, goals)


def fill(folder: Path, products: Iterable[Product], goals: str) -> None:
    """Writes a folder, whole or not at all. Passes on what `products` raises."""

    def write(new: Path) -> None:
        _write(new, products, goals)

    publish(folder, write, folder.parent)


def _write(folder: Path, products: Iterable[Product], goals: str) -> None:
    offsets = [0]
    askers = []

    def indexed_texts() -> Iterable[str]:
        """The texts for the index; writes each product on the way."""
        with (folder / PRODUCTS).open("wb") as file:
            for place, product in enumerate(products):
                offsets.append(offsets[-1] + file.write(msgspec.json.encode(product)))
                count = goals_of(product, goals)
                if count:
                    askers.append(Asker(place, product.asin, count, product.category))
                yield product.indexed_text

    Bm25Index.over(map(lucene_words, indexed_texts())).save(folder / INDEX)
    np.save(folder / OFFSETS, np.array(offsets, dtype=np.int64))
    (folder / ASKERS).write_bytes(msgspec.json.encode(askers))
