"""How a trajectory ended, in the words of docs/concepts.md."""

from pathlib import Path
from typing import Any

import pytest
from agentcli.evaluation.episodes import ENDINGS, ending
from agentcli.records.types import Outcome, Validity
from credit_trees import ERRORED, FAILURE, SUCCESS, TRUNCATED, chains, walk

CONCEPTS = Path(__file__).parents[2] / "docs/concepts.md"
MALFORMED = {"validity": Validity.MALFORMED, "action": None}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (walk("abc", SUCCESS), "success"),
        (walk("abc", ERRORED), "errored"),
        (walk("abababababab", TRUNCATED), "repeated"),
        (walk("abababababab", SUCCESS), "success"),
        (walk("abcdef", TRUNCATED, invalid={2, 3, 4}), "inadmissible"),
        ([{**MALFORMED, "outcome": FAILURE}], "malformed"),
        (walk("abcdef", TRUNCATED), "truncated"),
        (walk("abcdef", FAILURE), "failure"),
    ],
)
def test_how_a_trajectory_ended(steps: list[dict[str, Any]], expected: str) -> None:
    assert ending(chains([steps]).steps) == expected


def test_every_ending_is_a_word_that_the_documents_define() -> None:
    text = CONCEPTS.read_text(encoding="utf-8")
    assert set(Outcome) < set(ENDINGS)
    for name in ENDINGS:
        assert f"| **{name}** |" in text
