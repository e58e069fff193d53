"""How a trajectory ended, in the words of docs/concepts.md."""

from pathlib import Path
from typing import Any

import pytest
from agentcli.evaluation.episodes import ENDINGS, ending, episodes
from agentcli.exploration.nodes import errored_tree
from agentcli.records.types import Outcome, Task, Validity
from credit_trees import ERRORED, FAILURE, SUCCESS, TRUNCATED, chains, move, walk

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


@pytest.mark.parametrize(("last", "expected"), [(1, "truncated"), (3, "repeated")])
def test_a_step_repeats_only_as_much_as_its_copies_do(last: int, expected: str) -> None:
    """Four copies; in the `last` of five steps all of them repeat their first move, four moves of twenty each."""
    kinds = [0, *range(1, 6 - last), *last * [0]]
    steps: list[dict[str, Any]] = []
    for kind in kinds:
        steps.append({"moves": [move(copy, f"a{kind}", f"s{kind}") for copy in range(1, 5)], "outcome": None})
    steps[-1]["outcome"] = TRUNCATED
    assert ending(chains([steps]).steps) == expected


def test_what_was_never_answered_is_no_step() -> None:
    tree = errored_tree(Task(id="t", world="w", split="s", kind="k"), "chain", 0, "no engine")
    (episode,) = episodes(tree)
    assert (episode.outcome, episode.steps, episode.moves) == (ERRORED, 0, 0)


def test_every_ending_is_a_word_that_the_documents_define() -> None:
    text = CONCEPTS.read_text(encoding="utf-8")
    assert set(Outcome) < set(ENDINGS)
    for name in ENDINGS:
        assert f"| **{name}** |" in text
