"""Retrievers: queries in, documents with scores out; here over a corpus in memory.

A corpus is generated (questions.py), or a file as Search-R1 publishes it. A plain file
is not read into memory: its documents are read one by one, by their position.
"""

from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from agentcli.errors import DataError
from agentcli.records.files import read_numbered
from agentcli.records.regular import open_regular
from agentcli.worlds.bm25 import Bm25Index, lucene_words
from agentcli.worlds.row_files import LINES, LinesOnDisk


class Document(msgspec.Struct, frozen=True):
    """A passage that can be retrieved."""

    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """The passage as corpora and retrieval servers write it: title, then text."""
        return f'"{self.title}"\n{self.text}'


class Hit(NamedTuple):
    """A document that answers a query."""

    document: Document
    score: float


class Retriever(Protocol):
    """A corpus that can be searched.

    Equal queries give equal hits, for as long as an episode lasts: a fork may replay it.
    Both methods raise EngineError where the retriever fails.
    """

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The best hits of each query, best first, at most `k`."""

    def access(self, id: str) -> Document | None:
        """The document of an id; None where there is none."""


def document_of(id: str, contents: str) -> Document:
    """The document whose contents are `"Title"`, a line end, and the text."""
    title, _, text = contents.partition("\n")
    return Document(id, title.strip().removeprefix('"').removesuffix('"'), text)


LONGEST_QUERY = 64
"""Words of a query that count."""


class EmbeddedRetriever:
    """A Retriever; its index is made when somebody searches."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = documents

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        return [self._search(query, k) for query in queries]

    def access(self, id: str) -> Document | None:
        """The document of an id; None where there is none."""
        place = self._places.get(id)
        return None if place is None else self._documents[place]

    def _search(self, query: str, k: int) -> list[Hit]:
        ranked = self._index.best(lucene_words(query), k, LONGEST_QUERY)
        return [Hit(self._documents[place], score) for place, score in ranked]

    @cached_property
    def _index(self) -> Bm25Index:
        texts = (f"{document.title} {document.text}" for document in self._documents)
        return Bm25Index.over(map(lucene_words, texts))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {document.id: place for place, document in enumerate(self._documents)}


class CorpusRow(msgspec.Struct, frozen=True):
    """One line of the file; further fields are not read."""

    id: str | int
    contents: str

    @property
    def document(self) -> Document:
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


class CorpusFile(LinesOnDisk[Document]):
    """The documents of a plain file, which are read one by one."""

    def __init__(self, path: Path) -> None:
        file = open_regular(path)
        # A dump has 21 million lines: eight bytes each here, about forty in a list.
        starts = array("Q")
        start = 0
        for line in file:
            if not line.isspace():
                starts.append(start)
            start += len(line)
        starts.append(start)
        decode = msgspec.json.Decoder(CorpusRow).decode
        super().__init__(file, starts, lambda line: decode(line).document)
        self._path = path

    def __iter__(self) -> Iterator[Document]:
        # Read in order, a faulty line is named by its number.
        return _documents(self._path)


def _documents(path: Path) -> Iterator[Document]:
    """The documents as they are read; raises DataError naming file and line."""
    for _, row in read_numbered(path, CorpusRow, whole=True):
        yield row.document
