"""Exact match and F1 by hand, after the normalisation of SQuAD."""

import pytest
from agentcli.worlds.search_qa.engine import SCORES, exact_match, f1, f1_asearcher, normalised


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


@pytest.mark.parametrize(
    ("answer", "references", "words"),
    [
        ("The Beatles", ["Beatles"], 2 / 3),
        ("beatles!", ["Wings", "Beatles"], 1),
        # Sets: a word counts once.
        ("new new new york", ["New York"], 1),
        # Punctuation parts words.
        ("U.S.", ["US"], 0),
        ("King's College", ["King s"], 4 / 5),
        ("Rodney Crowell", ["John Leventhal"], 0),
        ("", ["a"], 0),
        ("...", ["..."], 0),
        ("Cambridge", [], 0),
    ],
)
def test_f1_of_asearcher(answer: str, references: list[str], words: float) -> None:
    assert f1_asearcher(answer, references) == pytest.approx(words)


def test_they_have_names() -> None:
    assert SCORES["exact"]("York", ["york"]) == SCORES["f1"]("York", ["york"]) == 1.0
    assert SCORES["f1-asearcher"]("The York", ["york"]) == pytest.approx(2 / 3)
