"""Checksums of the files that a stage wrote, so that later damage is refused.

`outputs` of a manifest entry has a CRC-32 of every piece of a file: of every line, and
in a binary file of every megabyte. So a reader that skips to one line can check it. A
stage removes its entry before it changes a file and writes it last: an entry never
describes an older file. A file without an entry is read unchecked.
"""

import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from agentcli.errors import DataError
from agentcli.records.faults import UNREADABLE, shown
from agentcli.records.regular import open_regular, read_regular

MANIFEST = "manifest.json"
DIGITS = 8
"""Hexadecimal digits of one checksum."""
BLOCK = 1 << 20
LINES = (".json", ".jsonl")


class _Entry(msgspec.Struct):
    outputs: dict[str, str] = {}


class _Entries(msgspec.Struct):
    """The part of a manifest that is read here."""

    stages: dict[str, _Entry] = {}


class Recorded(NamedTuple):
    """The stage that wrote a file, and the checksums of its pieces."""

    stage: str
    checksums: str


def pieces(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    """The pieces of the file opened from `path`: its lines, or blocks of bytes."""
    if path.suffix in LINES:
        return iter(file)
    return iter(partial(file.read, BLOCK), b"")


def checksums(path: Path) -> str:
    """The checksum of every piece of a file."""
    with open_regular(path) as file:
        return "".join(map(_checksum, pieces(path, file)))


def recorded(path: Path) -> Recorded | None:
    """What the manifest of its run says about a file; None if it says nothing."""
    path = path.absolute()
    # A file lies in the run itself or in one of its folders.
    for folder in path.parents[:2]:
        name = path.relative_to(folder).as_posix()
        for stage, entry in _entries(folder / MANIFEST).items():
            if name in entry.outputs:
                return Recorded(stage, entry.outputs[name])
    return None


def lost_its_end(path: Path) -> bool:
    """Whether a file has fewer pieces than its stage wrote."""
    entry = recorded(path)
    if entry is None:
        return False
    with open_regular(path) as file:
        there = sum(1 for _ in pieces(path, file))
    return there * DIGITS < len(entry.checksums)


def checked_pieces(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    """The pieces of the file opened from `path`.

    Raises DataError for the first that is not what its stage wrote.
    """
    check = Check(path)
    for number, content in enumerate(pieces(path, file), 1):
        check.piece(number, content)
        yield content


class Check:
    """Compares the pieces of a file with the manifest while they are read.

    Readers themselves miss lines that a file has lost at its end: --resume adds them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._recorded = recorded(path)

    def piece(self, number: int, content: bytes) -> None:
        """Raises DataError for a piece, counted from 1, that has changed."""
        # Blank lines hold no record.
        if self._recorded is None or content.isspace():
            return
        end = number * DIGITS
        # A line beyond those that were recorded has no checksum, and is refused as
        # well.
        if self._recorded.checksums[end - DIGITS : end] != _checksum(content):
            self._refuse(number)

    def _refuse(self, number: int) -> None:
        # A stage may have begun to write the file after the manifest was read.
        if recorded(self._path) != self._recorded:
            self._recorded = None
            return
        place = f"{self._path}:{number}"
        if self._path.suffix not in LINES:
            place = f"{self._path}: from byte {(number - 1) * BLOCK}"
        stage = shown(self._recorded.stage) if self._recorded else ""
        raise DataError(
            f"{place}: changed after {stage} wrote it ({MANIFEST} has the checksum); "
            f"take it from a copy, or write {stage} again with --overwrite"
        )


def _checksum(content: bytes) -> str:
    return f"{zlib.crc32(content):0{DIGITS}x}"


def _entries(manifest: Path) -> dict[str, _Entry]:
    try:
        return msgspec.json.decode(read_regular(manifest), type=_Entries).stages
    except (*UNREADABLE, DataError):
        # There is none, or it is of another program; a run's own is refused by whoever
        # reads all of it.
        return {}
