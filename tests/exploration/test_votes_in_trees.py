"""Test-time branching in whole trees, worked out by hand: votes on actions and by outcome, ties, depth, token budget, price."""

import asyncio
from typing import Any

import pytest
from agentcli.policies.protocol import Policy, Reply, Request
from agentcli.records.settings import AdvisorSettings
from agentcli.records.trees import paths
from agentcli.records.types import Outcome, Tree
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Script, ScriptedPolicy, SeededPolicy, Surprises
from verdicts import Asked, Judge
from word_trees import grow_word, words
from word_world import WordEngines


def branch(policy: Policy, samples: int = 1, seed: int = 0, max_steps: int = 4, **voting: Any) -> tuple[Tree, int]:
    """The tree and how often the engine was stepped."""
    engines, method = WordEngines(), "test-time-branch"
    tree = grow_word(method, policy, max_steps, seed, engines, leaves=samples, **voting)
    return tree, engines.calls


def then(*answers: tuple[str, float]) -> tuple[Script, Surprises]:
    """Explores once and says a; there these actions are sampled in turn, with -log pi / |Y|; whatever follows is die."""

    def script(history: tuple[str, ...], times: int) -> tuple[str, str]:
        if not history:
            return "explore", "a"
        return "think", answers[times][0] if history == ("a",) else "die"

    return script, lambda history, times: answers[times][1] if history == ("a",) else 0.5


def test_the_majority_is_executed_and_one_trajectory_kept() -> None:
    """After the first step, which explores, b has three of five votes; the loser's tokens are charged all the same."""
    tree, calls = branch(ScriptedPolicy(*then(*((word, 1.0) for word in "abbba"))), branching=5)
    assert words(tree) == [["a", "b", "die"]]
    assert tree.ledger.generated_tokens == (1 + 5 + 1) * 3
    assert tree.ledger.steps == calls == 3
    assert tree.ledger.shared_prompt_tokens == 4 * 7, "four of five saw a prompt that was paid for"


@pytest.mark.parametrize("vote", ["action", "outcome"])
@pytest.mark.parametrize(
    ("answers", "taken", "error"),
    [
        ([("a", 1.0), ("b", 0.5)], "b", None),
        ([("a", 0.5), ("b", 0.5)], "a", None),
        ([("", 0.1), ("a", 1.0)], "a", None),
        ([("break", 0.1), ("b", 1.0)], "b", None),
        ([("", 0.1), ("", 0.1), ("b", 2.0)], "b", None),
        ([("", 0.1), ("", 0.5)], None, None),
        ([("break", 0.5), ("", 0.5)], None, None),
        ([("break", 0.5), ("break", 0.5)], None, "no answer"),
    ],
    ids=[
        "likelier",
        "the earlier of equals",
        "unreadable has no vote",
        "unanswered has no vote",
        "nor has a majority",
        "all unreadable",
        "unreadable rather than unanswered",
        "all unanswered",
    ],
)
def test_ties_and_what_has_no_vote(
    answers: list[tuple[str, float]], taken: str | None, error: str | None, vote: str
) -> None:
    tree, _ = branch(ScriptedPolicy(*then(*answers)), branching=len(answers), vote=vote, max_steps=2)
    assert words(tree) == [["a", taken]]
    assert tree.steps[1].error == error


@pytest.mark.parametrize("vote", ["action", "outcome"])
def test_likelier_is_meant_per_token(vote: str) -> None:
    """a: -1 in one token; b: -.6 in each of two."""
    script, surprises = then(("a", 1.0), ("b", 0.6))
    policy = ScriptedPolicy(script, surprises, lambda history, times: 1 + times)
    assert words(branch(policy, branching=2, vote=vote, max_steps=2)[0]) == [["a", "b"]]


def test_a_tie_of_actions_is_decided_by_the_mean_of_their_responses() -> None:
    """a: -1.125 and -.125, mean -.625; b: -.75 and -.25, mean -.5. The single likeliest response says a. The first that says b is
    executed, though the other is likelier."""
    tree, _ = branch(ScriptedPolicy(*then(("a", 1.125), ("b", 0.75), ("b", 0.25), ("a", 0.125))), branching=4)
    assert words(tree) == [["a", "b", "die"]]
    assert tree.steps[1].logprobs == [-0.75] * 3


def test_of_failures_the_higher_score_is_taken_before_the_majority() -> None:
    tree, _ = branch(ScriptedPolicy(*then(("b", 0.5), ("coin", 2.0), ("b", 0.5))), branching=3, vote="outcome")
    assert words(tree) == [["a", "coin", "die"]]
    by_action, _ = branch(ScriptedPolicy(*then(("b", 0.5), ("coin", 2.0), ("b", 0.5))), branching=3)
    assert words(by_action) == [["a", "b", "die"]]


@pytest.mark.parametrize("vote", ["action", "outcome"])
def test_no_vote_follows_an_end(vote: str) -> None:
    """All explore: an end, the horizon, and an initial state have no step before them that could."""
    for answer, steps in (("die", 4), ("crash", 4), ("a", 1)):
        policy = ScriptedPolicy(lambda history, times, answer=answer: ("explore", answer))
        tree, _ = branch(policy, samples=2, max_steps=steps, vote=vote)
        assert (words(tree), sum(policy.asked.values())) == ([[answer]] * 2, 2)


@pytest.mark.parametrize("vote", ["action", "outcome"])
def test_every_trajectory_has_its_own_votes_and_tokens(vote: str) -> None:
    """Two samples, two steps, both explore: one vote each, 3 + 3 x 2 tokens by action, 6 + 3 by outcome."""
    policy = ScriptedPolicy(lambda history, times: ("explore", "a"))
    tree, _ = branch(policy, samples=2, max_steps=2, branching=2, depth=1, vote_tokens=7, vote=vote)
    assert words(tree) == [["a", "a"]] * 2
    assert tree.ledger.generated_tokens == 2 * 9


@pytest.mark.parametrize(
    ("answered", "taken", "steps"),
    [(4, "aaaa", 4), (9, "aaaa", 9), (10, "abaa", 10), (12, "abaa", 12)],
    ids=["before the first vote", "within it", "before the second", "within it"],
)
def test_a_deadline_keeps_the_trajectory_that_was_taken_so_far(answered: int, taken: str, steps: int) -> None:
    """4 answers end the first trajectory, 6 more the first vote. What a vote had begun is paid for and left out."""
    policy = Silenced(never, answered)
    tree = grow_word("test-time-branch", policy, leaves=1, deadline_seconds=1.0, branching=3, vote="outcome")
    assert words(tree) == [list(taken)]
    assert tree.steps[-1].outcome is Outcome.TRUNCATED
    assert (tree.ledger.leaves, tree.ledger.steps, tree.ledger.generated_tokens) == (1, steps, 3 * steps)


def test_a_deadline_within_the_first_trajectory_is_an_errored_leaf() -> None:
    silent = Silenced(never, 2)
    tree = grow_word("test-time-branch", silent, leaves=1, deadline_seconds=1.0, vote="outcome")
    assert words(tree) == [["a", "a"]]
    assert "within 1 s" in str(tree.steps[-1].error)


class Silenced(ScriptedPolicy):
    """Does not answer any more after so many answers."""

    def __init__(self, script: Script, answers: int) -> None:
        super().__init__(script)
        self._answers = answers

    async def respond(self, request: Request) -> Reply:
        self._answers -= 1
        if self._answers < 0:
            await asyncio.Event().wait()
        return await super().respond(request)


def second_thoughts(history: tuple[str, ...], times: int) -> tuple[str, str]:
    """Explores in a; there it says b three times and dies in the end, and from the fourth answer on it says win."""
    if history == ():
        return "explore", "a"
    if history == ("a",):
        return "think", "win" if times == 3 else "b"
    return "explore", "die"


def test_the_branch_that_wins_is_taken_though_outvoted() -> None:
    tree, calls = branch(ScriptedPolicy(second_thoughts), branching=4, vote="outcome")
    assert words(tree) == [["a", "win"]]
    assert tree.steps[-1].outcome is Outcome.SUCCESS
    assert tree.ledger.generated_tokens == 3 * (3 + 2 + 2 + 1), "a b die, b die, b die, win"
    assert tree.ledger.steps == calls == 8
    assert tree.ledger.forks == 3
    assert tree.ledger.leaves == 1
    by_majority, _ = branch(ScriptedPolicy(second_thoughts), branching=4, vote="action")
    assert words(by_majority) == [["a", "b", "die"]]


def test_a_trajectory_that_wins_holds_no_vote() -> None:
    tree, calls = branch(ScriptedPolicy(lambda history, times: ("explore", "win" if history else "a")), vote="outcome")
    assert (words(tree), calls) == ([["a", "win"]], 2)


def never(history: tuple[str, ...], times: int) -> tuple[str, str]:
    """Explores everywhere, says a first and b afterwards, and never wins."""
    return "explore", "b" if times else "a"


@pytest.mark.parametrize(("depth", "votes", "expected"), [(1, 1, "abaa"), (2, 2, "abbb"), (None, 3, "abbb")])
def test_depth_bounds_the_votes(depth: int | None, votes: int, expected: str) -> None:
    """Four steps, three states to explore in. At each, two branches say b and outvote the one that said a; the second vote's go
    on with b, because a was said there by a branch of the first."""
    tree, calls = branch(ScriptedPolicy(never), branching=3, vote="outcome", depth=depth)
    (taken,) = words(tree)
    assert taken == list(expected)
    assert calls == tree.ledger.steps == 4 + sum(2 * (3 - place) for place in range(votes))
    assert tree.steps[-1].outcome is Outcome.TRUNCATED
    asked = ScriptedPolicy(never)
    branch(asked, branching=3, vote="action", depth=depth)
    assert sum(asked.asked.values()) == 4 + 2 * votes


@pytest.mark.parametrize(("tokens", "votes"), [(1, 0), (3, 0), (4, 1), (12, 1), (13, 2), (999, 3)])
def test_no_vote_begins_once_the_tokens_are_spent(tokens: int, votes: int) -> None:
    """Three tokens a response: 3 before the first vote, 12 before the second, 21 before the third."""
    policy = ScriptedPolicy(never)
    tree, _ = branch(policy, branching=3, vote="action", vote_tokens=tokens)
    assert tree.ledger.generated_tokens == 3 * (4 + 2 * votes) == 3 * sum(policy.asked.values())


def test_outcome_votes_stop_at_the_tokens_too() -> None:
    """12 tokens to the first end, and 2 x 9 for the first vote."""
    for tokens, expected in ((12, 12), (13, 12 + 18), (30, 12 + 18), (31, 12 + 18 + 12)):
        tree, _ = branch(ScriptedPolicy(never), branching=3, vote="outcome", vote_tokens=tokens)
        assert tree.ledger.generated_tokens == expected


@pytest.mark.parametrize(
    ("last", "taken"),
    [(("b", "b", "a"), "b"), (("", "", "a"), "a"), (("crash", "crash", "a"), "a"), (("crash",) * 3, "crash")],
    ids=["majority", "unreadable responses have no vote", "what broke comes last", "all broke"],
)
def test_which_failure_is_taken(last: tuple[str, str, str], taken: str) -> None:
    script: Script = lambda history, times: ("think", last[times]) if history else ("explore", "a")  # noqa: E731
    tree, _ = branch(ScriptedPolicy(script), branching=3, vote="outcome", max_steps=2)
    assert words(tree) == [["a", taken]]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from(["action", "outcome"]),
    st.one_of(st.none(), st.integers(1, 3)),
    st.one_of(st.none(), st.integers(1, 60)),
)
def test_one_trajectory_a_sample_and_every_step_charged(
    seed: int, samples: int, branching: int, vote: str, depth: int | None, tokens: int | None
) -> None:
    policy = SeededPolicy((*"aab", "noop", "sing", "win", "die"))
    limits: dict[str, Any] = {"branching": branching, "vote": vote, "depth": depth, "vote_tokens": tokens}
    tree, calls = branch(policy, samples, seed, max_steps=5, **limits)
    found = paths(tree)
    assert len(found) == samples == tree.ledger.leaves
    assert tree.ledger.generated_tokens >= sum(len(step.token_ids) for step in tree.steps)
    kept = sum(step.action is not None for step in tree.steps)
    assert kept <= calls <= tree.ledger.steps
    assert tree == branch(policy, samples, seed, max_steps=5, **limits)[0]
    if branching == 1 or vote == "outcome":
        plain, _ = branch(policy, samples, seed, max_steps=5, branching=1)
        won = [path[-1].outcome is Outcome.SUCCESS for path in found]
        before = [path[-1].outcome is Outcome.SUCCESS for path in paths(plain)]
        assert all(now or not then for now, then in zip(won, before, strict=True)), "a success is never given up"


@pytest.mark.parametrize(("broken", "failed"), [(0, [False, False]), (1, [True, False]), (4, [False, True])])
def test_a_verdict_that_failed_on_a_branch_that_lost_breaks_that_sample_alone(broken: int, failed: list[bool]) -> None:
    """Two samples explore and try two ways; of the four verdicts one fails, on a way that is kept or not."""

    def script(history: tuple[str, ...], times: int) -> tuple[str, str]:
        return ("think", "die") if history else ("explore", "a")

    voting = {"branching": 2, "vote": "outcome", "answer_judge": AdvisorSettings(kind="openai")}
    judge = Judge("Incorrect", broken=[broken])
    tree = grow_word(
        "test-time-branch", ScriptedPolicy(script), world=Asked(), models={"answer_judge": judge}, leaves=2, **voting
    )
    assert judge.asked == 4
    ends = [path[-1].outcome for path in paths(tree)]
    assert sorted(end is Outcome.ERRORED for end in ends) == sorted(failed)
