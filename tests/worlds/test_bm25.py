"""The index that worlds share: what a search finds, in which order, and what it costs to look at few."""

import random

import numpy as np
import pytest
from agentcli.worlds.bm25 import Bm25Index, lucene_words


@pytest.mark.parametrize("texts", [30, 20_000])
def test_a_search_finds_what_looking_at_every_score_finds(texts: int) -> None:
    rng = random.Random(0)
    words = [f"word{number}" for number in range(40)]
    index = Bm25Index.over(rng.choices(words, k=4) for _ in range(texts))
    for query in (["word1"], ["word1", "word2", "word3"], words):
        scores = index._index.get_scores([word for word in query if word in index._vocabulary])
        ranked = index.best(query, 50)
        order = [int(place) for place in np.argsort(-scores, kind="stable")[:50] if scores[place] > 0]
        assert [place for place, _ in ranked] == order
        assert [score for _, score in ranked] == [scores[place] for place in order]
    assert index.best(["nothing", "of", "it"], 50) == []


def test_words_are_stems_without_stop_words() -> None:
    assert lucene_words("The Dogs' running, and a dog's RUN") == ["dog", "run", "dog", "run"]


def test_an_index_that_is_saved_finds_the_same(tmp_path) -> None:
    index = Bm25Index.over([["red", "fox"], ["red"], ["hen"]])
    index.save(tmp_path / "index")
    loaded = Bm25Index.load(tmp_path / "index")
    assert loaded.best(["red", "fox"], 2) == index.best(["red", "fox"], 2)
    assert [place for place, _ in loaded.best(["red"], 5)] == [1, 0]
