"""carl, treerl, arpo and spark's entropy trigger: trees worked out by hand. All entropies are exact in binary, so ties are ties."""

from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from scripted import Audited, ListedPolicy, ScriptedPolicy, SeededPolicy
from word_trees import TASK, grow_word, words
from word_world import WordEngines

from agentcli.errors import PolicyError, UsageError
from agentcli.exploration.triggers import surprise
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.parse import format_response
from agentcli.records.settings import EntropySettings
from agentcli.records.trees import children
from agentcli.records.types import Outcome, Step, Tree

Answers = dict[tuple[str, ...], list[tuple[str, float]]]
"""Actions so far -> what is sampled there, in order: (action, -log pi / |Y|)."""


def scripted(answers: Answers) -> ScriptedPolicy:
    def pick(history: tuple[str, ...], times: int) -> tuple[str, float]:
        found = answers.get(history, [("a", 0.25)])
        return found[min(times, len(found) - 1)]

    return ScriptedPolicy(lambda h, t: ("think", pick(h, t)[0]), lambda h, t: pick(h, t)[1])


Name = tuple[int, ...]


def names(tree: Tree) -> set[Name]:
    """Every step as its places among siblings, from the root on."""
    siblings = children(tree)
    named: dict[int | None, Name] = {None: ()}
    for step in tree.steps:
        named[step.id] = (*named[step.parent], siblings[step.parent].index(step))
    return {named[step.id] for step in tree.steps}


CARL: Answers = {
    (): [("a", 0.5), ("b", 0.75), ("win", 0.25)],
    ("a",): [("b", 0.875), ("win", 0.125)],
    ("a", "b"): [("win", 0.125)],
    ("b",): [("win", 0.5), ("a", 0.25)],
    ("b", "a"): [("die", 0.3125)],
}
"""After N0 = 2 trajectories, [a b win] and [b win]:

    state     H              n   H/n
    start     (.5 + .75)/2   2   .3125
    a         .875           1   .875     <- fork 1 says win (.125): H .5, n 2, H/n .25
    a b       .125           1   .125
    b         .5             1   .5       <- fork 2 says a (.25): H .375, n 2, H/n .1875, and a new state follows
    b a       .3125          1   .3125    as much as start, which is older: fork 3 leaves from start
"""


def test_carl_forks_the_largest_entropy_per_child() -> None:
    trees = {n: grow_word("carl", scripted(CARL), leaves=n, roots=2) for n in (2, 3, 4, 5)}
    assert words(trees[2]) == [["a", "b", "win"], ["b", "win"]]
    assert words(trees[3]) == [["a", "b", "win"], ["a", "win"], ["b", "win"]]
    assert words(trees[4]) == [["a", "b", "win"], ["a", "win"], ["b", "win"], ["b", "a", "die"]]
    assert words(trees[5]) == [["a", "b", "win"], ["a", "win"], ["b", "win"], ["b", "a", "die"], ["win"]]


LITE: Answers = {
    (): [("a", 0.5), ("", 0.25)],
    ("a",): [("b", 1.0), ("crash", 0.5), ("win", 0.25)],
    ("a", "b"): [("win", 0.75), ("a", 0.25)],
    ("a", "b", "a"): [("die", 0.125)],
    ("",): [("win", 0.4375), ("die", 0.25)],
}
"""N0 = 1 begins with [a b win]:

    state      H             n   H/n
    start      .5            1   .5
    a          1             1   1        <- fork 1 breaks the engine with a sampled response (.5): H .75, n 2, H/n .375
    a b        .75           1   .75      <- fork 2 says a (.25): H .5, n 2, H/n .25
    a b a      .125          1   .125     new with it; it says die
    start      .5            1   .5       <- fork 3 cannot be read (.25): H .375, n 2, H/n .1875; the engine stays where it is, but
    unread     .4375         1   .4375       what the agent has seen does not: a new state. It says win. <- fork 4 says die (.25)
    a          .75           2   .375     <- fork 5 says win (.25)
"""


def test_carl_lite_with_an_errored_leaf_and_an_unreadable_response() -> None:
    trees = [words(grow_word("carl", scripted(LITE), leaves=n, roots=1)) for n in range(1, 7)]
    first, crash, deep = ["a", "b", "win"], ["a", "crash"], ["a", "b", "a", "die"]
    assert trees == [
        [first],
        [first, crash],
        [first, deep, crash],
        [first, deep, crash, [None, "win"]],
        [first, deep, crash, [None, "win"], [None, "die"]],
        [first, deep, crash, ["a", "win"], [None, "win"], [None, "die"]],
    ]


BROKEN: Answers = {
    (): [("a", 0.5), ("win", 0.5)],
    ("a",): [("b", 1.0), ("break", 9.0), ("win", 0.25)],
    ("a", "b"): [("win", 0.625), ("win", 0.125)],
}
"""A fork that the policy does not answer is a child without an entropy:

    state      H             n   H/n
    start      .5            1   .5
    a          1             1   1        <- fork 1 gets no answer: H 1, n 2, H/n .5
    a b        .625          1   .625     <- fork 2 says win (.125): H .375, n 2, H/n .1875
    start      .5            1   .5       <- fork 3, as much as a and older, says win (.5): H .5, n 2, H/n .25
    a          1             2   .5       <- fork 4
"""


def test_carl_counts_a_child_that_was_never_sampled_and_gives_it_no_entropy() -> None:
    trees = [words(grow_word("carl", scripted(BROKEN), leaves=n, roots=1)) for n in range(2, 6)]
    first, none = ["a", "b", "win"], ["a", None]
    assert trees == [
        [first, none],
        [first, first, none],
        [first, first, none, ["win"]],
        [first, first, none, ["a", "win"], ["win"]],
    ]


def test_carl_takes_the_oldest_of_equals() -> None:
    """[a a win] gives three states of H/n .5. Forks 1 and 2 leave from start and a, H (.5 + .25) / 2, H/n .1875; fork 3 from a a,
    which says .5 again: H .5, H/n .25, so fork 4 does too."""
    answers = {(): [("a", 0.5), ("win", 0.25)], ("a",): [("a", 0.5), ("win", 0.25)], ("a", "a"): [("win", 0.5)]}
    deep, middle = ["a", "a", "win"], ["a", "win"]
    assert [words(grow_word("carl", scripted(answers), leaves=n, roots=1)) for n in range(1, 6)] == [
        [deep],
        [deep, ["win"]],
        [deep, middle, ["win"]],
        [deep, deep, middle, ["win"]],
        [deep, deep, deep, middle, ["win"]],
    ]


def test_carl_takes_the_mean_over_all_samples_of_a_state() -> None:
    """Beside a (11/64, n 1) the start has H/n .5, then (.5 + .25) / 2 / 2 = .1875, then (.5 + .25 + .75) / 3 / 3 = .1667: two forks
    leave from start and the third from a. Half of the sum of the mean and the new sample would be .5625 and H/n .1875."""
    answers = {(): [("a", 0.5), ("win", 0.25), ("win", 0.75)], ("a",): [("win", 0.171875)]}
    assert [words(grow_word("carl", scripted(answers), leaves=n, roots=1)) for n in range(1, 5)] == [
        [["a", "win"]],
        [["a", "win"], ["win"]],
        [["a", "win"], ["win"], ["win"]],
        [["a", "win"], ["a", "win"], ["win"], ["win"]],
    ]


@pytest.mark.parametrize("method", ["carl", "arpo", "treerl", "treerpo"])
@pytest.mark.parametrize("leaves", [1, 3])
def test_as_many_roots_as_leaves_is_a_chain(method: str, leaves: int) -> None:
    tree = grow_word(method, SeededPolicy(("a", "win")), leaves=leaves, roots=leaves)
    assert tree.steps == grow_word("chain", SeededPolicy(("a", "win")), leaves=leaves).steps
    assert tree.ledger.forks == 0


@pytest.mark.parametrize("method", ["carl", "arpo", "treerl", "treerpo"])
def test_the_horizon_is_no_state_to_fork(method: str) -> None:
    """With one step, everything starts anew."""
    assert words(grow_word(method, scripted({}), leaves=4, roots=2, max_steps=1)) == [["a"]] * 4


def test_carl_charges_its_ledger() -> None:
    """Nine steps; two forks away from the start; siblings after the first share their prompt: a|win, b|a, and two at the start."""
    ledger = grow_word("carl", scripted(CARL), leaves=5, roots=2).ledger
    assert (ledger.leaves, ledger.steps, ledger.forks, ledger.generated_tokens) == (5, 9, 2, 27)
    assert (ledger.prompt_tokens, ledger.shared_prompt_tokens) == (63, 28)


def test_carl_lite_starts_with_one_trajectory_and_bounds_its_training_steps() -> None:
    """N0 = 1 and N forks: N + 1 leaves, and between N + 1 and 2N actions have a sibling (eq. 15)."""
    for forks in (1, 3, 8):
        tree = grow_word("carl", scripted(CARL), leaves=forks + 1, roots=1, max_steps=6)
        critical = sum(len(siblings) for siblings in children(tree).values() if len(siblings) > 1)
        assert tree.ledger.leaves == forks + 1
        assert forks + 1 <= critical <= 2 * forks


def test_carl_is_not_misled_by_length() -> None:
    """Entropy is per token: -1.0 twice is as uncertain as -1.0 once, and less than -1.5 once."""
    step = Step(
        id=0, parent=None, prompt="", response="x", observation="", state="", next_state="", next_observation=""
    )
    step.logprobs = [-1.0, -1.0]
    assert surprise(step, "") == 1.0
    step.logprobs = [-1.5]
    assert surprise(step, "") == 1.5


def test_random_forks_are_uniform_over_the_states() -> None:
    """A trajectory of three steps has three states; a fork from the start adds two, from the next one one, from the last none. Of
    480 seeds, 160 fork each of the three first, and share the 5, 4 or 3 states of then evenly (standard deviations below 8)."""
    begun = {(0,), (0, 0), (0, 0, 0)}

    def forks(seed: int) -> tuple[Name, ...]:
        grown = [names(grow_word("treerl", scripted({}), leaves=n, roots=1, seed=seed, max_steps=3)) for n in (2, 3)]
        return tuple(min(after - before)[:-1] for before, after in pairwise([begun, *grown]))

    ways = Counter(forks(seed) for seed in range(480))
    expected = {first: {(), (0,), (0, 0)} for first in ((), (0,), (0, 0))}
    expected[()] |= {(1,), (1, 0)}
    expected[0,] |= {(0, 1)}
    assert ways.keys() == {(first, second) for first, seconds in expected.items() for second in seconds}
    assert all(abs(count - 160 / len(expected[first])) < 30 for (first, _), count in ways.items())


def test_tasks_draw_apart() -> None:
    """Seeds belong to a task: with the same rollout seed, six tasks do not branch or fork alike."""
    rollouts = {"treerl": {}, "spark": {"branch": "fixed:.5"}}
    for method, options in rollouts.items():
        tasks = [msgspec.structs.replace(TASK, id=f"word/{number}") for number in range(6)]
        grown = [grow_word(method, scripted({}), leaves=4, roots=1, task=task, **options) for task in tasks]
        assert len({tuple(sorted(names(tree))) for tree in grown}) > 1
        policies = [Audited(scripted({})) for _ in tasks]
        for task, policy in zip(tasks, policies, strict=True):
            grow_word(method, policy, task=task, **options)
        seeds = [seed for policy in policies for seed in policy.seeds]
        assert len(set(seeds)) == len(seeds)


def test_treerl_treerpo_and_random_carl_are_one_growth() -> None:
    grown = {
        method: grow_word(method, scripted({}), leaves=6, roots=2, criterion="random", seed=5)
        for method in ("treerl", "treerpo", "carl")
    }
    assert [tree.method for tree in grown.values()] == ["treerl", "treerpo", "carl"]
    assert len({tuple(step.parent for step in tree.steps) for tree in grown.values()}) == 1
    assert {tree.ledger.leaves for tree in grown.values()} == {6}
    entropic = grow_word("treerl", scripted(CARL), leaves=5, roots=2, criterion="entropy")
    assert words(entropic) != words(grow_word("carl", scripted(CARL), leaves=5, roots=2))


def test_finished_states_are_never_forked() -> None:
    """Every first action ends the trajectory, so that only the start can be forked."""
    for ending in ("win", "die", "crash"):
        for method in ("carl", "treerl"):
            tree = grow_word(method, scripted({(): [(ending, 2.0)]}), leaves=5, roots=1)
            assert words(tree) == [[ending]] * 5


def test_where_nothing_can_be_sampled_nothing_is_forked() -> None:
    for method in ("carl", "treerl"):
        tree = grow_word(method, scripted({}), engines=WordEngines(broken="no such game"), leaves=5, roots=2)
        assert [step.error for step in tree.steps] == ["no such game"] * 2


def test_a_policy_that_breaks_leaves_an_errored_leaf_and_the_states_before_it() -> None:
    class Breaks(ScriptedPolicy):
        async def respond(self, request: Request) -> Reply:
            if len(request.context.actions) == 2:
                raise PolicyError("prompt too long")
            return await super().respond(request)

    policy = Breaks(lambda h, t: ("think", "a"), lambda h, t: 0.5)
    tree = grow_word("carl", policy, leaves=3, roots=1)
    ends = [step for step in tree.steps if step.outcome is not None]
    assert [step.outcome for step in ends] == [Outcome.ERRORED] * 3
    assert {step.error for step in ends} == {"prompt too long"}
    assert tree.ledger.forks + sum(step.parent is None for step in tree.steps) == 3


ARPO: Answers = {
    (): [("a", 0.25), ("b", 0.5), ("win", 0.25)],
    ("a",): [("a", 0.5)],
    ("a", "a"): [("a", 0.25), ("b", 0.75)],
    ("b",): [("b", 0.25)],
    ("b", "b"): [("a", 0.5)],
}
"""alpha = tau = .5, beta = .2: P > tau where the entropy is above that of the trajectory's first step.

    a:  .25, then .5 (rise: 2 continuations, 3 leaves), then a .25 (equal) and b .75 (rise: 2 continuations, 4 leaves)
    b:  .5, then .25, then .5: never above
    and the fifth leaf starts anew
"""
BRANCHED = [["a", "a", "a", "a"], ["a", "a", "b", "a"], ["a", "a", "b", "a"], ["b", "b", "a", "a"]]


def test_arpo_branches_where_entropy_rises_and_spends_the_rest_at_the_root() -> None:
    tree = grow_word("arpo", scripted(ARPO), leaves=5, roots=2)
    assert words(tree) == [*BRANCHED, ["win"]]
    assert (tree.ledger.leaves, tree.ledger.forks) == (5, 2)
    assert tree.method == "arpo"


def test_spark_by_entropy_is_arpo_without_the_rest() -> None:
    assert words(grow_word("spark", scripted(ARPO), leaves=5, roots=2, branch="entropy")) == BRANCHED


def test_arpo_stops_branching_when_the_budget_is_spent() -> None:
    tree = grow_word("arpo", scripted(ARPO), leaves=3, roots=2)
    assert words(tree) == [["a", "a", "a", "a"], ["a", "a", "b", "a"], ["b", "b", "a", "a"]]


def test_threshold_and_weights_decide() -> None:
    policy, high = SeededPolicy(("a", "b")), EntropySettings(threshold=9.0)
    never = grow_word("arpo", policy, leaves=5, roots=2, entropy=high)
    assert never.steps == grow_word("chain", policy, leaves=5).steps, "all that is left begins anew"
    always = grow_word("arpo", scripted({}), leaves=4, roots=1, entropy=EntropySettings(base=1.0, weight=0.0))
    explore = ScriptedPolicy(lambda h, t: ("explore", "a"))
    assert words(always) == words(grow_word("spark", explore, leaves=4, roots=1))


@pytest.mark.parametrize(
    ("method", "rollout", "instead"),
    [
        ("carl", {}, "rollout.criterion=random"),
        ("arpo", {}, "--method spark"),
        ("spark", {"branch": "entropy"}, "--branch explore"),
    ],
)
def test_a_policy_without_log_probabilities_is_refused(method: str, rollout: dict, instead: str) -> None:
    class Silent(ListedPolicy):
        async def respond(self, request: Request) -> Reply:
            return Reply(text=format_response("think", "go", "a"), generated_tokens=9)

    with pytest.raises(UsageError, match=f"need log-probabilities and this policy gives none.*{instead}") as caught:
        grow_word(method, Silent([]), **rollout)
    assert "\n" not in str(caught.value)
    ledger = grow_word("carl", Silent([]), criterion="random").ledger
    assert (ledger.leaves, ledger.generated_tokens) == (8, 9 * ledger.steps)


@pytest.mark.parametrize("method", ["carl", "arpo", "treerl"])
def test_more_roots_than_leaves_are_refused(method: str) -> None:
    with pytest.raises(UsageError, match="lower --roots"):
        grow_word(method, scripted({}), leaves=2, roots=3)
