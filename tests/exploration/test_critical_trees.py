"""criticality: what is drawn again, what follows it, and what is refused (CARL eq. 5)."""

from typing import Any

import pytest
from agentcli.errors import UsageError
from agentcli.exploration.registry import check
from agentcli.exploration.settings import decode
from deciding import Drawn, Greedy, grow_critical
from word_trees import words

DRAWN: Drawn = {
    (): [("a", 0.5), ("a", 0.25), ("b", 0.75), ("win", 1.0)],
    ("a",): [("b", 0.5), ("win", 0.1), ("noop", 0.1), ("die", 0.1)],
    ("a", "b"): [("win", 0.5), ("die", 0.2), ("die", 0.2), ("die", 0.2)],
}
GREEDY: Greedy = {("a",): "win", ("b",): "a", ("b", "a"): "die", ("a", "noop"): "win"}


def test_every_action_is_drawn_again_and_followed_greedily() -> None:
    """The trajectory a, b, win; three draws in each of its three states."""
    tree = grow_critical(DRAWN, GREEDY, draws=3)
    assert words(tree) == [
        *[["a", "b", "win"], ["a", "b", "die"], ["a", "b", "die"], ["a", "b", "die"]],
        *[["a", "win"], ["a", "noop", "win"], ["a", "die"]],
        *[["a", "win"], ["b", "a", "die"], ["win"]],
    ]
    assert (tree.roots, tree.method) == (1, "criticality")


def test_only_the_drawn_action_is_left_to_chance() -> None:
    tree = grow_critical(DRAWN, GREEDY, draws=3)
    greedy = [step.action for step in tree.steps if step.temperature == 0]
    sampled = [step.action for step in tree.steps if step.temperature > 0]
    assert sorted(map(str, greedy)) == ["a", "die", "win", "win"]
    assert len(sampled) == 3 + 3 * 3
    assert len(tree.steps) == len(greedy) + len(sampled)


def test_several_trajectories_share_the_draws_of_the_start() -> None:
    """Two trajectories of one step, then two draws at the start, and none elsewhere."""
    drawn = {(): [("win", 0.5), ("die", 0.5), ("a", 0.5), ("b", 0.5)]}
    tree = grow_critical(drawn, {("a",): "win", ("b",): "die"}, leaves=2, draws=2)
    assert words(tree) == [["win"], ["die"], ["a", "win"], ["b", "die"]]
    assert tree.roots == 2


@pytest.mark.parametrize(
    ("values", "words"),
    [({"draws": 1}, "draws"), ({"distinct": 2}, "rollout.distinct")],
    ids=["one draw has no spread", "draws are not to be drawn again"],
)
def test_settings_that_would_bias_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises((UsageError, ValueError), match=words):
        check(decode({"rollout": {"method": "criticality", **values}}))


@pytest.mark.parametrize(
    "rollout",
    [
        {"method": "criticality"},
        {"method": "carl"},
        {"method": "arpo"},
        {"method": "spark", "branch": "entropy"},
    ],
    ids=lambda rollout: str(rollout["method"]),
)
def test_greedy_responses_tell_no_states_apart(rollout: dict[str, Any]) -> None:
    check(decode({"rollout": rollout}))
    with pytest.raises(UsageError, match=r"policy\.temperature: 0: .*--temperature above 0"):
        check(decode({"rollout": rollout, "policy": {"temperature": 0}}))


@pytest.mark.parametrize(
    "rollout",
    [{}, {"method": "carl", "criterion": "random"}, {"method": "spark"}, {"method": "treerl"}],
    ids=["chain", "carl at random", "spark", "treerl"],
)
def test_others_may_be_greedy(rollout: dict[str, Any]) -> None:
    check(decode({"rollout": rollout, "policy": {"temperature": 0}}))
