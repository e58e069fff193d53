"""arpo and spark's entropy trigger worked out by hand; forks at random; and what all methods that fork share. All entropies are
exact in binary, so ties are ties."""

from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from agentcli.errors import UsageError
from agentcli.exploration.triggers import EntropySettings
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.tagged import write_tagged
from agentcli.records.trees import children
from agentcli.records.types import Tree, Validity
from refusal import refused
from scripted import Answers, Audited, ListedPolicy, ScriptedPolicy, SeededPolicy, scripted
from word_trees import TASK, grow_word, words
from word_world import WordEngines

Name = tuple[int, ...]


def names(tree: Tree) -> set[Name]:
    """Every step as its places among siblings, from the root on."""
    siblings = children(tree)
    named: dict[int | None, Name] = {None: ()}
    for step in tree.steps:
        named[step.id] = (*named[step.parent], siblings[step.parent].index(step))
    return {named[step.id] for step in tree.steps}


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
    assert grow_word("treerl", scripted({}), leaves=6, roots=2, criterion="entropy", seed=5) == grown["treerl"]


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


RISING: Answers = {
    (): [("a", 0.25), ("b", 0.5), ("win", 0.25)],
    ("a",): [("a", 0.5)],
    ("a", "a"): [("a", 0.25), ("b", 0.75)],
    ("b",): [("b", 0.25)],
    ("b", "b"): [("a", 0.5)],
}
"""alpha = tau = .5, beta = .2: P > tau where the entropy is above that of the trajectory's first step.

    a:  .25, then .5 (rise: 2 continuations, 3 leaves), then a .25 (equal) and b .75 (rise: 2 continuations, 4 leaves)
    b:  .5, then .25, then .5: never above
"""


def test_spark_by_entropy_forks_the_state_after_a_surprise() -> None:
    tree = grow_word("spark", scripted(RISING), leaves=5, roots=2, branch="entropy")
    assert words(tree) == [["a", "a", "a", "a"], ["a", "a", "b", "a"], ["a", "a", "b", "a"], ["b", "b", "a", "a"]]


ARPO: Answers = {
    (): [("a", 0.25), ("b", 0.5), ("win", 0.25)],
    ("a",): [("a", 0.5), ("b", 0.75)],
    ("a", "b"): [("win", 0.75), ("b", 0.25)],
    ("b",): [("b", 0.25)],
    ("b", "b"): [("a", 0.5)],
}
"""The same numbers; arpo samples again where the surprise was sampled.

    a:  .25, then .5 (rise: one response more in that state, b, whose own .75 decides nothing; 3 leaves), and a (.25) to the end
    a b:  win .75 (rise, although it ends the trajectory: one response more, b; 4 leaves)
    b:  .5, then .25, then .5: never above
    and the fifth leaf starts anew
"""


def test_arpo_samples_again_where_entropy_rose_and_spends_the_rest_at_the_root() -> None:
    tree = grow_word("arpo", scripted(ARPO), leaves=5, roots=2)
    assert words(tree) == [["a", "a", "a", "a"], ["a", "b", "win"], ["a", "b", "b", "a"], ["b", "b", "a", "a"], ["win"]]
    assert (tree.ledger.leaves, tree.ledger.forks) == (5, 2)
    assert tree.method == "arpo"


def test_arpo_stops_branching_when_the_budget_is_spent() -> None:
    tree = grow_word("arpo", scripted(ARPO), leaves=3, roots=2)
    assert words(tree) == [["a", "a", "a", "a"], ["a", "b", "win"], ["b", "b", "a", "a"]]


def test_threshold_and_weights_decide() -> None:
    policy, high = SeededPolicy(("a", "b")), EntropySettings(threshold=9.0)
    never = grow_word("arpo", policy, leaves=5, roots=2, entropy=high)
    assert never.steps == grow_word("chain", policy, leaves=5).steps, "all that is left begins anew"
    # Every state after the initial one gets a second response, until there are four leaves.
    always = grow_word("arpo", scripted({}), leaves=4, roots=1, entropy=EntropySettings(base=1.0, weight=0.0))
    assert names(always) >= {(0, 0), (0, 1), (0, 0, 0), (0, 0, 1), (0, 0, 0, 0), (0, 0, 0, 1)}
    assert len(children(always)[None]) == 1


def test_arpo_goes_on_where_the_policy_breaks() -> None:
    tree = grow_word("arpo", scripted({("a",): [("break", 0.0)]}), leaves=3, roots=2)
    assert words(tree) == [["a", None]] * 3


@pytest.mark.parametrize(
    ("method", "rollout", "instead"),
    [
        ("carl", {}, "--criterion random"),
        ("arpo", {}, "--method spark"),
        ("spark", {"branch": "entropy"}, "--branch explore"),
    ],
)
def test_a_policy_without_log_probabilities_is_refused(method: str, rollout: dict, instead: str) -> None:
    class Silent(ListedPolicy):
        async def respond(self, request: Request) -> Reply:
            return Reply(text=write_tagged("think", "go", "a"), generated_tokens=9)

    refused(lambda: grow_word(method, Silent([]), **rollout), names="log-probabilities", remedy=instead)
    ledger = grow_word("carl", Silent([]), criterion="random").ledger
    assert (ledger.leaves, ledger.generated_tokens) == (8, 9 * ledger.steps)


class Speechless(ScriptedPolicy):
    """Its first response in some states is an empty text without tokens, as a server may give one; the rest follows `answers`."""

    def __init__(self, answers: Answers, empty: tuple[tuple[str, ...], ...]) -> None:
        inner = scripted(answers)
        super().__init__(inner._script, inner._surprises)
        self._empty = empty

    async def respond(self, request: Request) -> Reply:
        reply = await super().respond(request)
        history = request.moment.copies[0].actions
        if history in self._empty and self.asked[history] == 1:
            return Reply(text="", prompt_tokens=7)
        return reply


@pytest.mark.parametrize(("method", "options"), [("carl", {}), ("arpo", {}), ("spark", {"branch": "entropy"})])
def test_an_empty_response_has_no_entropy(method: str, options: dict) -> None:
    policy = Speechless({}, ((), ("a",)))
    tree = grow_word(method, policy, leaves=3, roots=2, **options)
    empty = [step for step in tree.steps if not step.response]
    assert {(step.validity, step.error) for step in empty} == {(Validity.MALFORMED, None)}
    assert tree.ledger.leaves >= 2


@pytest.mark.parametrize(("first", "leaves"), [(9.0, 1), (0.25, 2)])
def test_entropy_rises_from_the_first_response_that_has_one(first: float, leaves: int) -> None:
    policy = Speechless({("",): [("a", first)], ("", "a"): [("a", 0.5)]}, ((),))
    tree = grow_word("spark", policy, leaves=2, roots=1, branch="entropy", max_steps=5)
    assert words(tree) == [[None, "a", "a", "a", "a"]] * leaves


def test_entropies_of_another_distribution_than_the_sampled_one_are_refused() -> None:
    class Cool(ScriptedPolicy):
        stored = 1.0

        async def respond(self, request: Request) -> Reply:
            reply = await super().respond(request)
            return msgspec.structs.replace(reply, temperature=0.4, logprob_temperature=self.stored)

    class Tempered(Cool):
        stored = 0.4

    def policy(kind: type[Cool]) -> Cool:
        return kind(lambda history, times: ("think", "a"))

    for method, rollout in (("carl", {}), ("arpo", {}), ("spark", {"branch": "entropy"})):
        with pytest.raises(UsageError) as caught:
            grow_word(method, policy(Cool), **rollout)
        assert "\n" not in str(caught.value)
        assert all(word in str(caught.value) for word in ("0.4", "those at 1", "processed", "--temperature"))
    tree = grow_word("carl", policy(Cool), criterion="random")
    assert {(step.temperature, step.logprob_temperature) for step in tree.steps} == {(0.4, 1.0)}
    tree = grow_word("carl", policy(Tempered))
    assert {(step.temperature, step.logprob_temperature) for step in tree.steps} == {(0.4, 0.4)}


@pytest.mark.parametrize("method", ["carl", "arpo", "treerl"])
def test_more_roots_than_leaves_are_refused(method: str) -> None:
    refused(lambda: grow_word(method, scripted({}), leaves=2, roots=3), remedy="--roots")
