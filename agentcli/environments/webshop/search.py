"""The search engine of the shop: BM25 as WebShop's Lucene has it, by bm25s.

Words are stemmed by Porter's rules, Lucene's English stop words go, k1 is 0.9 and b 0.4
(Lucene's own defaults in pyserini). Equal scores are ordered as the catalogue is.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from agentcli.environments.making import BAR, no_bar

HITS = 50
"""Most hits of a search."""
K1, B = 0.9, 0.4
BLOCK = 256
"""Products of which a search first looks at the best alone."""
LEAST = np.nextafter(np.float32(0), np.float32(1))
"""The least score of a product that has one of the words."""
MANY = 50_000
"""Products from which on making the index is worth a bar."""
LONGEST_QUERY = 64
"""Words of a query that count."""
_WORD = re.compile(r"\w+(?:'\w+)*")
Scores = np.ndarray[tuple[int], np.dtype[np.float32]]


class SearchEngine:
    """An index over the products of a catalogue, by their places in it."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._vocabulary: dict[str, int] = index.vocab_dict

    @classmethod
    def over(cls, texts: Iterable[str]) -> "SearchEngine":
        """The index of these texts, which are read once."""
        import bm25s

        index = bm25s.BM25(k1=K1, b=B, method="lucene")
        vocabulary: dict[str, int] = {}
        ids = []
        for text in texts:
            words = []
            for word in _words(text):
                words.append(vocabulary.setdefault(word, len(vocabulary)))
            ids.append(words)
        show = BAR.get() if len(ids) >= MANY else no_bar
        with show(f"search index of {len(ids):,} products", 1) as reach:
            index.index((ids, vocabulary), show_progress=False)
            reach(1)
        return cls(index)

    @classmethod
    def load(cls, folder: Path) -> "SearchEngine":
        """An index that was saved; its numbers stay on disk until they are needed."""
        import bm25s

        return cls(bm25s.BM25.load(str(folder), mmap=True, show_progress=False))

    def save(self, folder: Path) -> None:
        """Writes the index into a new folder."""
        self._index.save(str(folder), show_progress=False)

    def best(self, query: str) -> list[int]:
        """The places of the best products, best first, at most HITS."""
        known = [word for word in _words(query) if word in self._vocabulary]
        scores = self._scores(
            [self._vocabulary[word] for word in known[:LONGEST_QUERY]]
        )
        candidates = np.flatnonzero(scores >= _bound(scores))
        if len(candidates) > HITS:
            least = np.partition(scores[candidates], -HITS)[-HITS]
            candidates = candidates[scores[candidates] >= least]
        order = np.argsort(-scores[candidates], kind="stable")
        return [int(place) for place in candidates[order[:HITS]]]

    def _scores(self, words: list[int]) -> Scores:
        """The score of every product; only those with one of the words are visited."""
        matrix = self._index.scores
        starts = matrix["indptr"]
        scores = np.zeros(matrix["num_docs"], dtype=np.float32)
        for word in words:
            here = slice(starts[word], starts[word + 1])
            scores[matrix["indices"][here]] += matrix["data"][here]
        return scores


def _bound(scores: Scores) -> Any:
    """A score above 0 that the best HITS products reach, if so many are above 0.

    The best of a block is a product, so HITS blocks have HITS products at least as good
    as the last of their best.
    """
    whole = len(scores) // BLOCK * BLOCK
    tops = scores[:whole].reshape(-1, BLOCK).max(axis=1)
    if len(tops) < HITS:
        return LEAST
    return max(LEAST, np.partition(tops, -HITS)[-HITS])


def _words(text: str) -> list[str]:
    """The stems of a text, in their order."""
    words = []
    for word in _WORD.findall(text.lower()):
        stem = _stem(word)
        if stem:
            words.append(stem)
    return words


@lru_cache(maxsize=1_000_000)
def _stem(word: str) -> str:
    """The stem of a word; "" for a stop word."""
    from bm25s.stopwords import STOPWORDS_EN

    word = word.removesuffix("'s")
    if word in STOPWORDS_EN:
        return ""
    stem: str = _stemmer().stemWord(word)
    return stem


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("porter")
