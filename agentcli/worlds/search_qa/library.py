"""The corpus as an agent uses it: searched, opened, and read part by part."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from agentcli.worlds.search_qa.options import SearchQaOptions
from agentcli.worlds.search_qa.retrievers import (
    Document,
    Hit,
    Retriever,
)

NOTHING = "Nothing is found."
MORE, LAST = "(more)", "(end)"
"""Close a part of a document: whether another one follows."""
NAMED = -1
"""Part of a document of which a search showed title and beginning."""
LONGEST_QUERY = 500
"""Characters."""
_HEAD = re.compile(
    r'^\[([^\]\n]*)\] (?:"(.+?)"|(.+?))(?:, part \d+ of \d+)?: ', re.MULTILINE
)
_QUOTED = re.compile('^"|: ')
"""What makes a title stand in quotes, so that its end can be told."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


class Shown(NamedTuple):
    """Something that the agent has seen."""

    document: Document
    part: int
    """From 0, or NAMED."""


class Library:
    """A retriever under the options of the world."""

    def __init__(self, retriever: Retriever, options: SearchQaOptions) -> None:
        self.browses = options.actions == "browse"
        self._retriever = retriever
        self._options = options

    def hits(self, query: str) -> list[Hit]:
        """The documents of a search. Raises EngineError where the retriever fails."""
        query = query[:LONGEST_QUERY]
        (hits,) = self._retriever.search([query], self._options.results)
        return hits

    def results(self, hits: Sequence[Hit]) -> str:
        """What a search shows: whole documents, or their beginnings."""
        lines = []
        for document, _ in hits:
            lines.append(f"{_head(document)}: {self.beginning(document)}")
        return "\n".join(lines) or NOTHING

    def beginning(self, document: Document) -> str:
        """What a search shows of a document's text."""
        text = document.text
        if self.browses and len(text) > self._options.snippet:
            return f"{text[: self._options.snippet]} ..."
        return text

    def parts(self, document: Document) -> tuple[str, ...]:
        """The parts in which a document is read; one where results are whole."""
        if not self.browses:
            return (document.text,)
        return _parts_of(document.text, self._options.part)

    def page(self, shown: Shown) -> str:
        """A part of a document as `access` and `read` show it."""
        document, number = shown
        parts = self.parts(document)
        end = MORE if self.has_more(shown) else LAST
        place = f"part {number + 1} of {len(parts)}"
        return f"{_head(document)}, {place}: {parts[number]} {end}"

    def has_more(self, shown: Shown) -> bool:
        return shown.part + 1 < len(self.parts(shown.document))

    def named(self, name: str, shown: Iterable[Shown]) -> Document | None:
        """The document of an id, or with the title of one that was shown.

        Raises EngineError where the retriever fails.
        """
        wanted = name.lower()
        titled = []
        for one in shown:
            plain = one.document.title.strip().lower()
            if wanted in (plain, f'"{plain}"'):
                titled.append(one.document)
        if titled:
            return min(titled, key=lambda document: document.id)
        return self._retriever.access(name)


def text_of(library: Library, shown: Shown) -> str:
    """The text that was shown; of a result under `browse`, title and beginning."""
    if shown.part == NAMED:
        return f"{shown.document.title}: {library.beginning(shown.document)}"
    return library.parts(shown.document)[shown.part]


def titles_in(texts: Iterable[str]) -> list[str]:
    """The documents that results and pages name, as "[id] title", each once."""
    names: dict[str, None] = {}
    for text in texts:
        for id, title in heads_in(text):
            names[f"[{id}] {title}"] = None
    return list(names)


def heads_in(text: str) -> list[tuple[str, str]]:
    """Id and title of each document that results or a page name."""
    if not text.startswith("["):
        return []
    return [(id, quoted or plain) for id, quoted, plain in _HEAD.findall(text)]


def _head(document: Document) -> str:
    title = document.title
    if _QUOTED.search(title):
        title = f'"{title}"'
    return f"[{document.id}] {title}"


@lru_cache(maxsize=4096)
def _parts_of(text: str, length: int) -> tuple[str, ...]:
    """Whole sentences, in all not longer than `length`.

    A longer sentence is a part of its own.
    """
    parts = [""]
    for sentence in _SENTENCE_END.split(text.strip()):
        longer = f"{parts[-1]} {sentence}".strip()
        if parts[-1] and len(longer) > length:
            parts.append(sentence)
        else:
            parts[-1] = longer
    return tuple(parts)
