"""A corpus from a file of {"id", "contents"} lines, as the 2018 Wikipedia is published.

Of a plain file only the place of each line is kept, 8 bytes a document: a document is
read when it is shown, so 21 million of them fit. A compressed file cannot be read from
its middle, and its documents stay in memory.
"""

import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

import msgspec

from agentcli.errors import DataError
from agentcli.records.files import read_numbered
from agentcli.records.regular import open_regular
from agentcli.worlds.row_files import LINES
from agentcli.worlds.search_qa.retrievers.protocol import Document, document_of


class CorpusRow(msgspec.Struct, frozen=True):
    """One line of the file; further fields are not read."""

    id: str | int
    contents: str

    @property
    def document(self) -> Document:
        """The document with its title apart."""
        return document_of(str(self.id), self.contents)


def read_corpus(path: Path) -> Sequence[Document]:
    """The documents of a file, in its order.

    Raises DataError for a file that is none, or is empty. A line that is no document
    raises it when the line is read.
    """
    if not path.name.endswith(LINES):
        raise DataError(
            f"{path}: not a corpus; its name must end with {', '.join(LINES)}"
        )
    plain = path.suffix == ".jsonl"
    documents = CorpusFile(path) if plain else tuple(_documents(path))
    if not documents:
        raise DataError(f'{path}: no document in it; a line is {{"id", "contents"}}')
    return documents


class CorpusFile(Sequence[Document]):
    """The documents of a plain file, which are read one by one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open_regular(path)
        self._starts = array("Q")
        start = 0
        for line in self._file:
            if not line.isspace():
                self._starts.append(start)
            start += len(line)
        self._end = start

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Document]:
        return _documents(self._path)

    @overload
    def __getitem__(self, place: int) -> Document: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Document]: ...
    def __getitem__(self, place: int | slice) -> Document | Sequence[Document]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        start = self._starts[place]
        following = range(len(self))[place] + 1
        end = self._starts[following] if following < len(self) else self._end
        # A position of the file itself would be moved by other threads.
        line = os.pread(self._file.fileno(), end - start, start)
        return msgspec.json.decode(line, type=CorpusRow).document


def _documents(path: Path) -> Iterator[Document]:
    """The documents as they are read; raises DataError naming file and line."""
    for _, row in read_numbered(path, CorpusRow, whole=True):
        yield row.document
