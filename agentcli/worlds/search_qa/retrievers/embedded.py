"""A corpus in memory, searched by BM25 in this process."""

from collections.abc import Sequence
from functools import cached_property

from agentcli.worlds.bm25 import Bm25Index, lucene_words
from agentcli.worlds.search_qa.retrievers.protocol import Document, Hit

LONGEST_QUERY = 64
"""Words of a query that count."""


class EmbeddedRetriever:
    """A Retriever; its index is made when somebody searches."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = documents

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The best documents of each query by BM25 over title and text."""
        return [self._search(query, k) for query in queries]

    def access(self, id: str) -> Document | None:
        """The document of an id; None where there is none."""
        place = self._places.get(id)
        return None if place is None else self._documents[place]

    def _search(self, query: str, k: int) -> list[Hit]:
        words = self._index.known(lucene_words(query))
        ranked = self._index.best(words[:LONGEST_QUERY], k)
        return [Hit(self._documents[place], score) for place, score in ranked]

    @cached_property
    def _index(self) -> Bm25Index:
        texts = (f"{document.title} {document.text}" for document in self._documents)
        return Bm25Index.over(map(lucene_words, texts))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {document.id: place for place, document in enumerate(self._documents)}
