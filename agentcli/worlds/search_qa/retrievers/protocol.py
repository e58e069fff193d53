"""The seam to retrievers: queries in, documents with scores out."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec


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
        ...

    def access(self, id: str) -> Document | None:
        """The document of an id; None where there is none."""
        ...


def document_of(id: str, contents: str) -> Document:
    """The document whose contents are `"Title"`, a line end, and the text."""
    title, _, text = contents.partition("\n")
    return Document(id, title.strip().removeprefix('"').removesuffix('"'), text)
