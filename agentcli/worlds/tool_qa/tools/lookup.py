"""facts, wikipedia, search and papers: tools that look things up.

facts is a table that must be asked by name. The other three search a corpus with bm25
(bm25s), and answer with whole documents.
"""

import re
from functools import lru_cache

from agentcli.worlds.bm25 import Bm25Index
from agentcli.worlds.tool_qa.knowledge import corpus, knowledge
from agentcli.worlds.tool_qa.tools.registry import ToolError

LONGEST_QUERY = 300
"""Characters."""
LEAST_SHARE = 0.3
"""A document counts if its score is at least this share of the best one's."""
_ARTICLES = re.compile(r"\b(the|a|an|what|is|are)\b|[^\w\s-]")
_WORD = re.compile(r"\b\w\w+\b")


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
            row = f"{fact.name} = {fact.value} {fact.unit}"
            rows[plain(fact.name)] = row.strip()
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
        ranked = _index(self.name).best(plain(argument).split(), self.documents)
        if not ranked:
            raise ToolError("nothing is found")
        lines = []
        for place, score in ranked:
            if score >= LEAST_SHARE * ranked[0].score:
                document = corpus(self.name)[place]
                lines.append(f"{document.title}: {document.text}")
        return "\n".join(lines)


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


@lru_cache(maxsize=3)
def _index(name: str) -> Bm25Index:
    """The bm25 index of a corpus (k1 1.5, b 0.75, no stop words left)."""
    from bm25s.stopwords import STOPWORDS_EN

    texts = []
    for document in corpus(name):
        words = _WORD.findall(f"{document.title} {document.text}".lower())
        texts.append([word for word in words if word not in STOPWORDS_EN])
    return Bm25Index.over(texts, k1=1.5, b=0.75)
