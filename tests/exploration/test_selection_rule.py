"""The rule that chooses a tool from a judge's scores, row by row (Rare-tool section 4.1)."""

import random

import pytest
from agentcli.exploration.rare_tool import Rule, select
from hypothesis import given
from hypothesis import strategies as st

TOOLS = ("calculator", "python", "search", "wikipedia", "papers", "facts", "units", "algebra")


def row(cot: float = 0.0, **scores: float) -> dict[str, float]:
    """The scores of all nine actions; those that are not given are 1."""
    return {name: scores.get(name, 1.0) for name in TOOLS} | {"cot": cot}


@pytest.mark.parametrize(
    ("scores", "rarity", "greedy"),
    [
        # Rare-tool Table 1, row 1: search is run at 6.2 where the best scores 7.5.
        (row(search=6.2, wikipedia=7.5), "search", "wikipedia"),
        # Row 2: a tool at the threshold itself is viable.
        (row(python=6.0), "python", "python"),
        # Row 3: chain of thought is strictly the best.
        (row(cot=8.1, search=8.0, python=6.0), "cot", "cot"),
        # Tied with the best tool it is not.
        (row(cot=8.0, search=8.0, python=6.5), "python", "search"),
        (row(cot=7.0, search=8.0), "search", "search"),
        # No tool reaches the threshold.
        (row(search=5.9, python=5.9), "cot", "python"),
        (row(cot=3.0, search=5.9), "cot", "search"),
        (row(cot=10.0), "cot", "cot"),
        # Of equal ones the first.
        (row(units=6.5, search=6.5, algebra=9.0), "search", "algebra"),
        (row(units=9.0, facts=9.0, search=7.0), "search", "facts"),
        (dict.fromkeys([*TOOLS, "cot"], 7.0), "calculator", "calculator"),
        (dict.fromkeys([*TOOLS, "cot"], 0.0), "cot", "calculator"),
    ],
)
def test_chosen_action(scores: dict[str, float], rarity: str, greedy: str) -> None:
    rng = random.Random(0)
    assert select(scores, "rarity", 6.0, rng) == rarity
    assert select(scores, "greedy", 6.0, rng) == greedy


def test_the_threshold_is_a_setting() -> None:
    scores = row(search=5.5, python=8.0)
    assert select(scores, "rarity", 5.0, random.Random(0)) == "search"
    assert select(scores, "rarity", 6.0, random.Random(0)) == "python"


def test_random_takes_every_viable_tool_equally_often() -> None:
    rng = random.Random(0)
    scores = row(search=6.0, python=9.0, units=7.0)
    drawn = [select(scores, "random", 6.0, rng) for _ in range(3000)]
    assert set(drawn) == {"search", "python", "units"}
    assert all(900 < drawn.count(name) < 1100 for name in set(drawn))


@given(
    st.lists(st.floats(0, 10), min_size=9, max_size=9),
    st.sampled_from(["rarity", "greedy", "random"]),
    st.floats(0, 10),
)
def test_never_better_than_the_best_and_never_below_the_threshold(
    scores: list[float], rule: Rule, threshold: float
) -> None:
    named = dict(zip([*TOOLS, "cot"], scores, strict=True))
    best_tool = max(scores[:-1])
    chosen = select(named, rule, threshold, random.Random(1))
    if named["cot"] > best_tool:
        assert chosen == "cot"
    elif rule == "greedy":
        assert named[chosen] == best_tool
        assert chosen != "cot"
    elif best_tool < threshold:
        assert chosen == "cot"
    else:
        assert chosen != "cot"
        assert threshold <= named[chosen] <= best_tool
        if rule == "rarity":
            assert all(named[chosen] <= score for name, score in named.items() if name != "cot" and score >= threshold)
