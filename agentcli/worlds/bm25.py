"""BM25 over texts with bm25s: the index shared by all worlds with a search engine.

The caller splits texts into words. `lucene_words` does so like Lucene's English
analyser, with Porter stems and without stop words. Ties keep the order of the texts.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentcli.environments.making import BAR, no_bar

LUCENE_K1, LUCENE_B = 0.9, 0.4
"""Lucene's own defaults in pyserini."""
BLOCK = 256
"""Texts in a block; a search first looks only at the best text of each block."""
LEAST = np.nextafter(np.float32(0), np.float32(1))
"""The lowest score of a text that contains one of the words."""
MANY = 50_000
"""Number of texts from which building the index shows a progress bar."""
_WORD = re.compile(r"\w+(?:'\w+)*")
Scores = np.ndarray[tuple[int], np.dtype[np.float32]]


class Ranked(NamedTuple):
    """A text that has one of the words, by its place."""

    place: int
    score: float


class Bm25Index:
    """An index over texts, by their places."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._vocabulary: dict[str, int] = index.vocab_dict

    @classmethod
    def over(
        cls,
        texts: Iterable[Iterable[str]],
        k1: float = LUCENE_K1,
        b: float = LUCENE_B,
    ) -> "Bm25Index":
        """The index of these texts, each given as its words and read once."""
        import bm25s

        index = bm25s.BM25(k1=k1, b=b, method="lucene")
        vocabulary: dict[str, int] = {}
        ids = []
        for words in texts:
            # In order of first use: the same texts give the same numbers in every
            # process.
            ids.append([vocabulary.setdefault(word, len(vocabulary)) for word in words])
        show = BAR.get() if len(ids) >= MANY else no_bar
        with show(f"search index of {len(ids):,} texts", 1) as reach:
            index.index((ids, vocabulary), show_progress=False)
            reach(1)
        return cls(index)

    @classmethod
    def load(cls, folder: Path) -> "Bm25Index":
        """An index that was saved; its numbers stay on disk until they are needed."""
        import bm25s

        return cls(bm25s.BM25.load(str(folder), mmap=True, show_progress=False))

    def save(self, folder: Path) -> None:
        self._index.save(str(folder), show_progress=False)

    def best(
        self, words: Iterable[str], number: int, longest: int | None = None
    ) -> list[Ranked]:
        """The texts with one of the words, best first, at most `number`.

        Of the words that stand in any text, only the first `longest` count.
        """
        known = [self._vocabulary[word] for word in words if word in self._vocabulary]
        scores = self._scores(known[:longest])
        # Lucene's idf is above 0 for any word, so only texts without a word score 0.
        candidates = np.flatnonzero(scores >= _bound(scores, number))
        # Ties at the last place are kept here, and cut by the stable sort below.
        if len(candidates) > number:
            least = np.partition(scores[candidates], -number)[-number]
            candidates = candidates[scores[candidates] >= least]
        order = np.argsort(-scores[candidates], kind="stable")
        places = candidates[order[:number]]
        return [Ranked(int(place), float(scores[place])) for place in places]

    def _scores(self, words: Sequence[int]) -> Scores:
        """The score of every text; only those with one of the words are visited."""
        matrix = self._index.scores
        starts = matrix["indptr"]
        scores = np.zeros(matrix["num_docs"], dtype=np.float32)
        for word in words:
            here = slice(starts[word], starts[word + 1])
            # numpy would add once for a repeated index, but a text stands once under a
            # word.
            scores[matrix["indices"][here]] += matrix["data"][here]
        return scores


def _bound(scores: Scores, number: int) -> Any:
    """A score above 0 that the best `number` texts reach, if so many are above 0.

    The best of a block is a text, so `number` blocks have as many texts that are at
    least as good as the last of their best.
    """
    whole = len(scores) // BLOCK * BLOCK
    tops = scores[:whole].reshape(-1, BLOCK).max(axis=1)
    if len(tops) < number:
        return LEAST
    return max(LEAST, np.partition(tops, -number)[-number])


def lucene_words(text: str) -> list[str]:
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

    # Lucene's English analyser takes the possessive off before the stop words.
    word = word.removesuffix("'s")
    if word in STOPWORDS_EN:
        return ""
    stem: str = _stemmer().stemWord(word)
    return stem


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("porter")
