"""facts, wikipedia, search and papers: what stands somewhere.

facts is a table that must be asked by name. The other three search a corpus with bm25
(bm25s), and answer with whole documents.
"""

import re
from functools import lru_cache
from typing import Any

from agentcli.environments.tool_qa.documents import Document, corpus
from agentcli.environments.tool_qa.knowledge import knowledge
from agentcli.environments.tool_qa.tools.protocol import ToolError

LONGEST_QUERY = 300
"""Characters."""
LEAST_SHARE = 0.3
"""A document counts if its score is at least this share of the best one's."""
_ARTICLES = re.compile(r"\b(the|a|an|what|is|are)\b|[^\w\s-]")


class Facts:
    """A table of constants and properties."""

    name = "facts"
    description = (
        "looks a property or a constant up in a table, e.g. facts[density of iron]"
    )
    cost = 0.0

    def run(self, argument: str) -> str:
        """The value with its unit. Raises ToolError for a name that is not there."""
        query = plain(argument)
        fact = _table().get(query)
        if fact is None:
            raise ToolError(f"no fact of the name {query!r}")
        return fact


@lru_cache(maxsize=1)
def _table() -> dict[str, str]:
    rows = {}
    for fact in knowledge().facts.values():
        if "facts" in fact.places:
            rows[plain(fact.name)] = f"{fact.name} = {fact.value} {fact.unit}".strip()
    return rows


def plain(text: str) -> str:
    """A name without articles, signs and capitals."""
    return " ".join(_ARTICLES.sub(" ", text[:LONGEST_QUERY].lower()).split())


class CorpusSearch:
    """Searches one corpus; the base of the three tools."""

    name: str
    description: str
    cost: float
    documents: int
    """Most documents of one answer."""

    def run(self, argument: str) -> str:
        """The best documents. Raises ToolError where none holds a word of the query."""
        best = index_of(self.name).best(argument[:LONGEST_QUERY], self.documents)
        if not best:
            raise ToolError("nothing is found")
        return "\n".join(f"{document.title}: {document.text}" for document in best)


class Wikipedia(CorpusSearch):
    """The best article."""

    name = "wikipedia"
    description = "finds an article of an encyclopaedia, e.g. wikipedia[iron]"
    cost = 0.4
    documents = 1


class WebSearch(CorpusSearch):
    """The three best pages."""

    name = "search"
    description = "searches the web, e.g. search[density of iron]"
    cost = 1.0
    documents = 3


class Papers(CorpusSearch):
    """The two best papers."""

    name = "papers"
    description = "searches scientific papers, e.g. papers[density of iron]"
    cost = 0.6
    documents = 2


class Index:
    """A corpus with its bm25 index (k1 1.5, b 0.75, no stop words left)."""

    def __init__(self, documents: tuple[Document, ...]) -> None:
        import bm25s

        self._documents = documents
        texts = [f"{document.title} {document.text}" for document in documents]
        tokens = bm25s.tokenize(texts, stopwords="en", show_progress=False)
        self._bm25: Any = bm25s.BM25()
        self._bm25.index(tokens, show_progress=False)
        self._words = frozenset(self._bm25.vocab_dict)

    def best(self, query: str, number: int) -> list[Document]:
        """The best documents, best first; ties in the order of the corpus."""
        words = [word for word in plain(query).split() if word in self._words]
        if not words:
            return []
        scores = self._bm25.get_scores(words)
        order = (-scores).argsort(kind="stable")[:number]
        least = LEAST_SHARE * scores[order[0]]
        return [self._documents[at] for at in order if scores[at] >= max(least, 1e-9)]


@lru_cache(maxsize=3)
def index_of(name: str) -> Index:
    """The index of a corpus; made once in a process."""
    return Index(corpus(name))
