"""Exact match and F1 by hand, after the normalisation of SQuAD."""

import pytest
from agentcli.environments.search_qa.scoring import SCORES, exact_match, f1, normalised


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The  King's College, Cambridge!", "kings college cambridge"),
        ("A man, a plan", "man plan"),
        ("Anthem", "anthem"),
        ("thé", "thé"),
        ("U.S.", "us"),
        ("the", ""),
    ],
)
def test_normalisation(text: str, wanted: str) -> None:
    assert normalised(text) == wanted


@pytest.mark.parametrize(
    ("answer", "references", "exact", "words"),
    [
        ("John Leventhal", ["john leventhal"], 1, 1),
        ("the John Leventhal.", ["Rodney Crowell", "John Leventhal"], 1, 1),
        ("Leventhal", ["John Leventhal"], 0, 2 / 3),
        ("John Dunn", ["John Leventhal"], 0, 1 / 2),
        ("Rodney Crowell", ["John Leventhal"], 0, 0),
        # Of a word that is there once, one counts.
        ("new new new york", ["New York"], 0, 2 / 3),
        ("", ["Cambridge"], 0, 0),
        ("the", ["a"], 1, 1),
        ("Cambridge", [], 0, 0),
    ],
)
def test_scores(answer: str, references: list[str], exact: float, words: float) -> None:
    assert exact_match(answer, references) == exact
    assert f1(answer, references) == pytest.approx(words)


def test_they_have_names() -> None:
    assert SCORES["exact"]("York", ["york"]) == SCORES["f1"]("York", ["york"]) == 1.0
