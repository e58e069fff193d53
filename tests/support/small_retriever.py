"""A retriever of three documents: those that hold a word of the query, in their order."""

from collections.abc import Sequence

from agentcli.worlds.search_qa.retrievers import Document, Hit

DOCUMENTS = (
    Document("7", "Ruth Scurr", "She was married to John Dunn."),
    Document("8", "John Dunn", 'He read history at "King\'s", Cambridge.'),
    Document("9", "Zürich", "A town.\nIt lies on a lake."),
)


class SmallRetriever:
    """A Retriever; scores count the words."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        return [self._search(set(query.split()))[:k] for query in queries]

    def access(self, id: str) -> Document | None:
        return next((document for document in DOCUMENTS if document.id == id), None)

    def _search(self, words: set[str]) -> list[Hit]:
        hits = [Hit(document, float(len(words & set(document.contents.split())))) for document in DOCUMENTS]
        return [hit for hit in hits if hit.score]
