"""Every exploration method on a world small enough that the tree can be worked out by hand from its algorithm."""

import asyncio
import random
from typing import Any

import pytest
from agentcli.exploration.registry import make, method_names
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.protocol import UNREADABLE
from agentcli.prompts.tagged import write_tagged
from agentcli.records.files import derive_seed
from agentcli.records.trees import children, leaves, paths
from agentcli.records.types import Outcome, StopReason, Tree, Validity
from hypothesis import given, settings
from hypothesis import strategies as st
from refusal import refused
from scripted import Answering, ListedPolicy, Script, ScriptedPolicy, SeededPolicy
from word_trees import TASK, grow_word, words
from word_world import WordEngines


def grow(method: str, script: Script, **settings: Any) -> Tree:
    return grow_word(method, ScriptedPolicy(script), **settings)


def test_chain_grows_exactly_n_independent_trajectories() -> None:
    def script(history: tuple[str, ...], times: int) -> tuple[str, str]:
        return "think", ["win", "a", "die"][times] if not history else "b"

    tree = grow("chain", script, leaves=3, max_steps=3)
    assert words(tree) == [["win"], ["a", "b", "b"], ["die"]]
    assert [path[-1].outcome for path in paths(tree)] == [Outcome.SUCCESS, Outcome.TRUNCATED, Outcome.FAILURE]
    assert [step.parent for step in tree.steps] == [None, None, 1, 2, None]
    assert tree.steps[0].reward == 1.0


def test_chain_charges_its_ledger() -> None:
    ledger = grow("chain", lambda history, times: ("think", "a"), leaves=2, max_steps=3).ledger
    assert (ledger.leaves, ledger.steps, ledger.forks, ledger.replayed_steps) == (2, 6, 0, 0)
    assert (ledger.generated_tokens, ledger.prompt_tokens, ledger.shared_prompt_tokens) == (18, 42, 7)


def test_spark_branches_after_explore_until_the_budget_is_spent() -> None:
    """N 4, M 1, B 2: step 1 explores -> 2 leaves, both explore -> 3 and 4 leaves, then min(2, 4 - 4 + 1) = 1."""
    tree = grow("spark", lambda history, times: ("explore", "ab"[times % 2]), leaves=4, roots=1, branching=2)
    assert words(tree) == [["a", "a", "a", "a"], ["a", "a", "b", "a"], ["a", "b", "a", "a"], ["a", "b", "b", "a"]]
    ledger = tree.ledger
    assert (ledger.leaves, ledger.steps, ledger.forks) == (4, 1 + 2 + 4 + 4, 3)
    assert ledger.shared_prompt_tokens == 3 * 7


@pytest.mark.parametrize("fork", ["after", "at"])
@pytest.mark.parametrize(
    ("leaves", "roots", "branching", "widths"),
    [
        (1, 1, 2, [1]),
        (3, 3, 2, [1, 1, 1]),
        (6, 1, 4, [4]),
        (4, 3, 4, [2, 1, 1]),
        (5, 2, 3, [3, 2]),
        (7, 2, 9, [6, 1]),
        (8, 4, 2, [2, 2, 2, 2]),
    ],
    ids=["budget 1", "as many roots as leaves", "all fit", "more than is left", "the rest", "all in one", "defaults"],
)
def test_spark_gives_the_budget_to_the_frontier_in_order(
    fork: str, leaves: int, roots: int, branching: int, widths: list[int]
) -> None:
    """All explore; the roots are forked after their first steps, or at their second ones. N_current is M at first, and every state
    gets min(B, N - N_current + 1) continuations, the first first:
    of N 4, M 3, B 4 the first has min(4, 4 - 3 + 1) = 2, the others min(4, 4 - 4 + 1) = 1."""
    rollout = {"fork": fork, "leaves": leaves, "roots": roots, "branching": branching}
    tree = grow("spark", lambda history, times: ("explore", "a"), max_steps=2, **rollout)
    found = children(tree)
    assert [len(found[step.id]) for step in found[None]] == widths


def test_spark_among_ends_and_unreadable_responses() -> None:
    """N 6, M 2, B 3, three steps. The first root explores: min(3, 6 - 2 + 1) = 3; the second thinks: 1. Then, in order: one says
    <explore> and cannot be read: 1; one explores and wins: none; one explores, min(3, 6 - 4 + 1) = 3, though what it does has no
    effect; and one explores: min(3, 6 - 6 + 1) = 1. The last steps explore, but the horizon is there."""
    answers = {
        (): [("explore", "a"), ("think", "b")],
        ("a",): [("explore", ""), ("explore", "win"), ("explore", "noop")],
        ("b",): [("explore", "a")],
        ("a", "noop"): [("explore", "a"), ("explore", "b"), ("think", "noop")],
        ("a", ""): [("explore", "win")],
        ("b", "a"): [("explore", "die")],
    }
    tree = grow("spark", lambda history, times: answers[history][times], leaves=6, roots=2, branching=3, max_steps=3)
    assert words(tree) == [
        ["a", None, "win"],
        ["a", "win"],
        ["a", "noop", "a"],
        ["a", "noop", "b"],
        ["a", "noop", "noop"],
        ["b", "a", "die"],
    ]
    assert [path[-1].outcome for path in paths(tree)] == [
        *[Outcome.SUCCESS] * 2,
        *[Outcome.TRUNCATED] * 3,
        Outcome.FAILURE,
    ]
    ledger = tree.ledger
    assert (ledger.leaves, ledger.steps, ledger.forks) == (6, 2 + 4 + 5, 2 + 2)
    assert ledger.shared_prompt_tokens == (1 + 2 + 2) * 7


def test_spark_without_explore_is_a_chain_of_m() -> None:
    tree = grow("spark", lambda history, times: ("think", "a"), leaves=8, roots=3)
    assert words(tree) == [["a"] * 4] * 3
    assert tree.ledger.forks == 0


def test_spark_never_branches_from_a_finished_state() -> None:
    """Every step explores, but each of these ends the trajectory: win, die, the horizon, and a broken engine."""
    for action in ("win", "die", "crash"):
        tree = grow("spark", lambda history, times, action=action: ("explore", action), leaves=8, roots=2)
        assert words(tree) == [[action]] * 2
    assert words(grow("spark", lambda history, times: ("explore", "a"), leaves=8, roots=2, max_steps=1)) == [["a"]] * 2


def test_at_the_step_that_explores_several_decisions_are_drawn() -> None:
    """N 5, M 1, B 3, six steps. The first step explores, but the start has its M roots. "a a" explores: the state after "a" gets
    min(3, 5 - 1 + 1) = 3 steps, of which the second explores too and the third ends the game: only the first of siblings decides.
    "a a x" explores and wins: its state gets min(3, 5 - 3 + 1) = 3 as well, for a last step may be the pivotal one."""
    answers = {
        (): [("explore", "a")],
        ("a",): [("explore", "a"), ("explore", "b"), ("think", "die")],
        ("a", "a"): [("explore", "win"), ("explore", "b"), ("explore", "die")],
        ("a", "b"): [("think", "win")],
        ("a", "a", "b"): [("explore", "die")],
    }
    growth = {"leaves": 5, "roots": 1, "branching": 3, "max_steps": 6, "fork": "at"}
    tree = grow("spark", lambda history, times: answers[history][times], **growth)
    assert words(tree) == [
        ["a", "a", "win"],
        ["a", "a", "b", "die"],
        ["a", "a", "die"],
        ["a", "b", "win"],
        ["a", "die"],
    ]
    assert (tree.roots, tree.ledger.leaves, tree.ledger.steps, tree.ledger.forks) == (1, 5, 9, 4)
    assert tree.ledger.shared_prompt_tokens == 4 * 7


def test_at_the_step_itself_no_answer_is_no_decision() -> None:
    """A policy that fails at the second step leaves the state as it is; one that cannot be read says nothing either."""
    for action in ("break", ""):
        script = {(): ("think", "a"), ("a",): ("explore", action), ("a", ""): ("think", "win")}
        tree = grow("spark", lambda history, times, script=script: script[history], leaves=4, roots=1, fork="at")
        assert len(paths(tree)) == 1


class SixDoors(Answering):
    """Nine forced steps, then one of six words, of which one wins; the seed of the request draws it."""

    async def respond(self, request: Request) -> Reply:
        if len(request.moment.copies[0].actions) < 9:
            return Reply(text=write_tagged("think", "on", "a"), stop=StopReason.STOP)
        word = random.Random(request.seed).choice(["win", "die", "die", "die", "die", "die"])
        return Reply(text=write_tagged("explore", "which", word), stop=StopReason.STOP)


@pytest.mark.parametrize(("fork", "coverage"), [("at", 1 - (1 - 1 / 6) ** 4), ("after", 1 / 6)])
def test_a_pivotal_decision_is_covered_as_equation_8_says(fork: str, coverage: float) -> None:
    """q = 1/6 is the chance of the right one, B 4: q_branch = 1 - (1 - q)^B = .518 where the decision itself is drawn again, and q
    where only what follows it would be. 400 trees: a standard deviation of at most .025."""
    growth = {"leaves": 4, "roots": 1, "branching": 4, "max_steps": 10, "fork": fork}
    won = 0
    for seed in range(400):
        tree = grow_word("spark", SixDoors(), seed=seed, **growth)
        won += any(step.outcome is Outcome.SUCCESS for step in tree.steps)
    assert abs(won / 400 - coverage) < 0.07


def test_spark_at_the_step_itself_is_arpo_with_another_trigger() -> None:
    """By entropy, where the triggers spend the whole budget: arpo then has nothing left for new trajectories."""
    growth = {"leaves": 4, "roots": 2, "branch": "entropy", "fork": "at", "max_steps": 9}
    spent = 0
    for seed in range(12):
        spark, arpo = (grow_word(method, SeededPolicy(("a", "b")), seed=seed, **growth) for method in ("spark", "arpo"))
        if spark.ledger.leaves == 4:
            assert spark.ledger.forks == 2
            assert spark.steps == arpo.steps
            spent += 1
    assert spent >= 3


def test_fixed_probability_replaces_the_trigger() -> None:
    def think(history: tuple[str, ...], times: int) -> tuple[str, str]:
        return "think", "a"

    always = grow("spark", think, leaves=4, roots=1, branch="fixed:1")
    explore = grow("spark", lambda history, times: ("explore", "a"), leaves=4, roots=1)
    assert words(always) == words(explore)
    assert len(paths(grow("spark", think, leaves=4, roots=1, branch="fixed:0"))) == 1


@pytest.mark.parametrize("seed", range(6))
def test_every_state_throws_its_own_coin(seed: int) -> None:
    """N 5, M 1, B 2, P .5: the leaves, by name, as the coins of the states have it."""

    def branches(name: tuple[int, ...]) -> bool:
        coin = random.Random(derive_seed("branch", seed, TASK.id, "/".join(map(str, name))))
        return coin.random() < 0.5

    frontier, current = [(0,)], 1
    for _ in range(3):
        following = []
        for name in frontier:
            two = branches(name) and current < 5
            current += two
            following += [(*name, index) for index in range(1 + two)]
        frontier = following
    tree = grow("spark", lambda h, t: ("think", "a"), leaves=5, roots=1, branch="fixed:.5", seed=seed)
    siblings = children(tree)
    names = [tuple(siblings[step.parent].index(step) for step in path) for path in paths(tree)]
    assert names == sorted(frontier)


def test_coins_fall_as_often_as_they_should() -> None:
    """400 seeds, P .3: 120 branch at their first state (standard deviation 9.2), and 120 of the others at their second."""
    settings = {"leaves": 2, "roots": 1, "branch": "fixed:.3", "max_steps": 3}
    forked = []
    for seed in range(400):
        tree = grow("spark", lambda history, times: ("think", "a"), seed=seed, **settings)
        forked += [parent for parent, siblings in children(tree).items() if len(siblings) > 1]
    assert abs(forked.count(0) - 120) < 40
    assert abs(forked.count(1) - 0.7 * 120) < 36


@pytest.mark.parametrize(
    ("rollout", "names"),
    [
        ({"branch": "sometimes"}, ("sometimes", "explore", "fixed:P", "entropy")),
        ({"branch": "fixed:2"}, ("fixed:2", "0 to 1")),
        ({"roots": 9, "leaves": 8}, ("9", "8", "--roots")),
    ],
)
def test_spark_refuses_settings_that_mean_nothing(rollout: dict, names: tuple[str, ...]) -> None:
    refused(lambda: grow("spark", lambda history, times: ("think", "a"), **rollout), names=names)


def test_a_malformed_response_costs_a_step_and_leaves_the_state() -> None:
    tree = grow("chain", lambda history, times: ("think", "win") if "" in history else ("think", ""), leaves=1)
    first, second = tree.steps
    assert (first.validity, first.action, first.next_observation) == (Validity.MALFORMED, None, UNREADABLE)
    assert first.state == first.next_state == second.state
    assert second.outcome is Outcome.SUCCESS


def test_the_last_allowed_step_is_truncated_even_where_it_cannot_be_read() -> None:
    tree = grow("chain", lambda history, times: ("think", ["", "a"][times]), leaves=2, max_steps=1)
    assert [step.outcome for step in tree.steps] == [Outcome.TRUNCATED] * 2
    assert [step.validity for step in tree.steps] == [Validity.MALFORMED, Validity.VALID]
    assert tree.ledger.steps == 2


def test_what_does_nothing_or_is_not_listed_is_inadmissible() -> None:
    tree = grow("chain", lambda history, times: ("think", ["noop", "sing", "a"][len(history)]), leaves=1, max_steps=3)
    assert [step.validity for step in tree.steps] == [Validity.INADMISSIBLE, Validity.INADMISSIBLE, Validity.VALID]


def test_a_broken_engine_is_an_errored_leaf_with_its_message() -> None:
    tree = grow("chain", lambda history, times: ("think", "crash" if times else "win"), leaves=3)
    assert [step.outcome for step in tree.steps] == [Outcome.SUCCESS, Outcome.ERRORED, Outcome.ERRORED]
    assert tree.steps[1].error == "the engine died"
    assert tree.steps[1].response


def test_a_task_that_cannot_be_opened_errs_every_leaf() -> None:
    engines = WordEngines(broken="no such game")
    for method, begun in (("chain", 3), ("spark", 2), ("arpo", 3), ("test-time-branch", 3)):
        tree = grow(method, lambda history, times: ("explore", "a"), engines=engines, leaves=3, roots=2)
        assert [step.error for step in tree.steps] == ["no such game"] * begun
        assert tree.ledger.steps == 0


@settings(max_examples=60, deadline=None)
@given(
    script=st.dictionaries(
        st.integers(0, 60),
        st.tuples(st.sampled_from(["think", "explore"]), st.sampled_from([*"aab", "win", "die", "noop", ""])),
    ),
    budget=st.integers(1, 9),
    roots=st.integers(1, 9),
    branching=st.integers(1, 4),
    fork=st.sampled_from(["after", "at"]),
)
def test_spark_keeps_its_budget_whatever_the_policy_does(
    script: dict, budget: int, roots: int, branching: int, fork: str
) -> None:
    roots = min(roots, budget)

    def respond(history: tuple[str, ...], times: int) -> tuple[str, str]:
        return script.get((len(history) * 7 + sum(map(len, history)) + times) % 61, ("think", "b"))

    tree = grow("spark", respond, leaves=budget, roots=roots, branching=branching, fork=fork)
    found = paths(tree)
    assert roots <= len(found) <= budget
    assert tree.ledger.leaves == len(found)
    assert tree.ledger.steps == len(tree.steps)
    assert tree.ledger.generated_tokens == sum(len(step.token_ids) for step in tree.steps)
    for parent, siblings in children(tree).items():
        assert len({(step.prompt, step.state, step.observation) for step in siblings}) == 1
        assert parent is None or tree.steps[parent].outcome is None
        assert parent is None or tree.steps[parent].next_observation == siblings[0].observation
        if parent is not None and len(siblings) > 1:
            assert len(siblings) <= branching
            assert (siblings[0] if fork == "at" else tree.steps[parent]).tag == "explore"


@pytest.mark.parametrize("method", ["chain", "spark", "arpo", "dpepo", "test-time-branch"])
def test_a_straggler_holds_up_no_other_trajectory(method: str) -> None:
    """The first trajectory answers its second question only when the second trajectory has ended: rounds would never end."""

    class Straggler(ScriptedPolicy):
        ended = asyncio.Event()

        async def respond(self, request: Request) -> Reply:
            rows.setdefault(request.episode_seed, len(rows))
            if rows[request.episode_seed] == 0 and len(request.moment.copies[0].actions) == 1:
                await self.ended.wait()
            if rows[request.episode_seed] == 1 and len(request.moment.copies[0].actions) == 3:
                self.ended.set()
            return await super().respond(request)

    rows: dict[int, int] = {}
    policy = Straggler(lambda history, times: ("explore", "a"))
    branching = 1 if method == "test-time-branch" else 2
    tree = grow_word(method, policy, leaves=2, roots=2, deadline_seconds=5.0, branching=branching)
    assert [step.outcome for step in leaves(tree)] == [Outcome.TRUNCATED] * 2


def test_methods_are_found_by_name() -> None:
    methods = {"chain", "spark", "carl", "arpo", "treerl", "treerpo", "dpepo", "test-time-branch"}
    assert methods <= set(method_names())
    refused(lambda: make("sparc"), names="sparc", remedy="spark")


def test_the_letter_case_of_an_action_is_kept_and_counts() -> None:
    """The releases lower-case it; here it must be written as the world lists it. Tags may be in any case."""
    responses = ["<Think> t </THINK><Action>A</ACTION>", "<think> t </think><action>win</action>"]
    tree = grow_word("chain", ListedPolicy(responses), leaves=1)
    assert [(each.action, each.validity) for each in tree.steps] == [
        ("A", Validity.INADMISSIBLE),
        ("win", Validity.VALID),
    ]
