"""The pictures of a page, each stored once, in separate blocks."""

import base64
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agentcli.records.pictures import read_picture
from agentcli.reports.page.blocks import BlockStore, Filling


class Album:
    """Numbers the pictures of a page as they come."""

    def __init__(self, store: BlockStore) -> None:
        self._numbers: dict[str, int] = {}
        self._filling = Filling(store)
        self._firsts: list[int] = []
        """The number of the first picture of each block."""

    def numbers(self, folder: Path, names: Sequence[str]) -> list[int]:
        """The numbers of pictures; those that are new are read from `folder`.

        Raises DataError for one that is missing or damaged.
        """
        for name in names:
            if name not in self._numbers:
                self._add(name, read_picture(folder, name))
        return [self._numbers[name] for name in names]

    def _add(self, name: str, png: bytes) -> None:
        number = len(self._numbers)
        text = base64.b64encode(png).decode()
        _, place = self._filling.add(msgspec.json.encode(text))
        if place == 0:
            self._firsts.append(number)
        self._numbers[name] = number

    def blocks(self) -> list[tuple[int, str]]:
        """Every block by its name, after the number of its first picture."""
        self._filling.close()
        return list(zip(self._firsts, self._filling.names, strict=True))
