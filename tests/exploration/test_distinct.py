"""Responses drawn again because a sibling took their action (rollout.distinct): by hand, and what must hold of any tree."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from agentcli.errors import UsageError
from agentcli.exploration.actor import Actor
from agentcli.exploration.registry import check
from agentcli.exploration.settings import rollout_settings
from agentcli.policies.protocol import Policy, Reply, Request
from agentcli.prompts.parallel import write_parallel
from agentcli.records.files import derive_seed
from agentcli.records.settings import Settings
from agentcli.records.trees import children
from agentcli.records.types import Outcome, Validity
from growing import grown
from growths import GROWTHS, VOTES, check_tree, did, growths
from hypothesis import given, settings
from hypothesis import strategies as st
from random_world import ACTIONS, RandomEngines
from refusal import refused
from scripted import Answering, ListedPolicy, ScriptedPolicy, SeededPolicy
from test_exploration_properties import toy
from word_trees import TASK, grow_word, words
from word_world import WordEngines, WordWorld

KEPT = [growth for growth in GROWTHS if growth not in VOTES]
"""Growths that keep what they sample."""


def scripted_roots(*actions: str) -> ScriptedPolicy:
    """Says these at the start, one after another, whoever asks; later always "b"."""
    return ScriptedPolicy(lambda history, times: ("think", "b" if history else actions[times]))


def test_a_repeated_action_is_drawn_again_and_every_draw_is_charged() -> None:
    """First draws a, a, a; the second root then says a, die; the third a, die, win. Three tokens and seven of a prompt each."""
    policy = scripted_roots("a", "a", "a", "a", "die", "a", "die", "win")
    tree = grow_word("chain", policy, leaves=3, max_steps=2, distinct=5)
    assert words(tree) == [["a", "b"], ["die"], ["win"]]
    roots = children(tree)[None]
    assert [step.redrawn for step in roots] == [0, 2, 3]
    ledger = tree.ledger
    assert (ledger.leaves, ledger.steps, ledger.siblings, ledger.distinct_siblings) == (3, 4, 3, 3)
    draws = 3 + 2 + 3 + 1
    assert (ledger.generated_tokens, ledger.prompt_tokens) == (3 * draws, 7 * draws)
    assert ledger.shared_prompt_tokens == 7 * (draws - 2), "all but those of the first root and of the step after it"


def test_after_n_draws_the_last_one_is_kept() -> None:
    tree = grow_word("chain", scripted_roots(*"a" * 5), leaves=2, max_steps=1, distinct=3)
    assert [(step.action, step.redrawn) for step in tree.steps] == [("a", 0), ("a", 3)]
    assert (tree.ledger.siblings, tree.ledger.distinct_siblings) == (2, 1)


def test_what_cannot_be_read_is_no_action() -> None:
    """Two unreadable responses are both kept; one that is drawn for a repetition is kept as well."""
    tree = grow_word("chain", scripted_roots("", "", "a", "a", ""), leaves=4, max_steps=1, distinct=3)
    assert [(step.action, step.redrawn) for step in tree.steps] == [(None, 0), (None, 0), ("a", 0), (None, 1)]
    assert (tree.ledger.siblings, tree.ledger.distinct_siblings) == (4, 2)


def test_a_policy_that_breaks_when_asked_again_leaves_an_errored_leaf() -> None:
    tree = grow_word("chain", scripted_roots("a", "a", "a", "break", "b"), leaves=3, max_steps=1, distinct=3)
    assert [(step.outcome, step.redrawn) for step in tree.steps][1:] == [
        (Outcome.ERRORED, 1),
        (Outcome.TRUNCATED, 1),
    ]
    assert tree.steps[2].action == "b", "an error took no action"


def test_copies_repeat_when_all_their_moves_do() -> None:
    texts = [{1: "a", 2: "b"}, {2: "b", 1: "a"}, {1: "a"}, {1: "a"}, {2: "die", 1: "win"}]
    policy = ListedPolicy([write_parallel("go", actions) for actions in texts])
    tree = grow_word("dpepo", policy, leaves=3, copies=2, max_steps=1, distinct=2)
    assert [did(step)[1:] for step in tree.steps] == [
        ((1, "a"), (2, "b")),
        ((1, "a"),),
        ((1, "win"), (2, "die")),
    ]
    assert [step.redrawn for step in tree.steps] == [0, 1, 1]
    assert (tree.ledger.siblings, tree.ledger.distinct_siblings, tree.ledger.generated_tokens) == (3, 3, 10)


class _Recorder(Answering):
    """Says "a" always, and remembers who asked with which seed."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    async def respond(self, request: Request) -> Reply:
        self.seeds.append(request.seed)
        return Reply(text="<think> go </think><action> a </action>")


def test_the_first_try_has_the_seed_it_always_had() -> None:
    policy = _Recorder()
    grow_word("chain", policy, leaves=2, max_steps=1, seed=5, distinct=2)
    assert policy.seeds[:2] == [derive_seed(5, TASK.id, "0"), derive_seed(5, TASK.id, "1")]
    assert policy.seeds[2:] == [derive_seed(5, TASK.id, "1", "again", attempt) for attempt in (1, 2)]


sizes = st.tuples(st.integers(1, 7), st.integers(1, 7)).map(sorted)


@pytest.mark.parametrize("growth", KEPT)
@settings(max_examples=25, deadline=None)
@given(world=st.integers(0, 2**32), seed=st.integers(0, 2**32), sizes=sizes, most=st.integers(1, 4))
def test_siblings_differ_unless_all_draws_were_used(
    growth: str, world: int, seed: int, sizes: list[int], most: int
) -> None:
    roots, budget = sizes
    chosen = {**GROWTHS[growth], "leaves": budget, "roots": roots, "distinct": most}
    grown = [
        grow_word(policy=SeededPolicy(ACTIONS), seed=seed, max_steps=4, engines=RandomEngines(world), **chosen)
        for _ in range(2)
    ]
    assert msgspec.json.encode(grown[0]) == msgspec.json.encode(grown[1]), (
        "the order in which answers came changes nothing"
    )
    tree = grown[0]
    check_tree(tree, 4)
    for siblings in children(tree).values():
        taken: set[Any] = set()
        for step in siblings:
            assert step.redrawn <= most
            readable = step.validity is not Validity.MALFORMED
            if readable and step.error is None:
                assert did(step) not in taken or step.redrawn == most
                taken.add(did(step))
        assert siblings[0].redrawn == 0


@growths
@settings(max_examples=10, deadline=None)
@given(world=st.integers(0, 2**32), seed=st.integers(0, 2**32))
def test_every_draw_is_charged_and_no_vote_is_drawn_again(growth: str, world: int, seed: int) -> None:
    policy = _Counted(SeededPolicy(ACTIONS))
    chosen = {**GROWTHS[growth], "leaves": 5, "roots": 2, "distinct": 3}
    tree = grow_word(policy=policy, seed=seed, max_steps=4, engines=RandomEngines(world), **chosen)
    assert (tree.ledger.generated_tokens, tree.ledger.prompt_tokens) == (policy.generated, policy.prompt)
    assert len(set(policy.seeds)) == len(policy.seeds), "no response is drawn twice"
    if growth in VOTES:
        assert not any(step.redrawn for step in tree.steps)
    else:
        answered = sum(bool(step.response) for step in tree.steps)
        assert answered + sum(step.redrawn for step in tree.steps) == policy.asked


class _Counted(Answering):
    """Adds up what it was asked."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner
        self.asked = self.generated = self.prompt = 0
        self.seeds: list[int] = []

    async def respond(self, request: Request) -> Reply:
        reply = await self._inner.respond(request)
        self.asked += 1
        self.seeds.append(request.seed)
        self.generated += len(reply.token_ids)
        self.prompt += reply.prompt_tokens
        return reply


def test_the_kept_responses_are_distributed_as_stated() -> None:
    """Two roots, three words of equal chance, N 1: given the first, q = 1/3, so that each new word has (1 + q) / 3 and the first
    one's q / 3 = 1/9. 3000 seeds: 333 repeat (standard deviation 17)."""
    pairs: Counter[bool] = Counter()
    for seed in range(3000):
        tree = grow_word("chain", _Thirds(), leaves=2, max_steps=1, seed=seed, distinct=1)
        pairs[tree.steps[0].action == tree.steps[1].action] += 1
        assert all(step.logprobs == [-1.0986] for step in tree.steps), "of the policy, whatever was thrown away"
    assert abs(pairs[True] - 3000 / 9) < 70


class _Thirds(Answering):
    """One of three words, by the seed."""

    async def respond(self, request: Request) -> Reply:
        word = ("a", "b", "noop")[request.seed % 3]
        return Reply(text=f"<think> go </think><action> {word} </action>", token_ids=(1,), logprobs=(-1.0986,))


@pytest.mark.parametrize("growth", KEPT)
def test_one_seed_is_one_tree_at_any_concurrency(growth: str) -> None:
    """One tree at a time, and eight; by live engines in two processes."""
    runs = [toy(growth, concurrency, processes=2) for concurrency in (1, 8)]
    for run in runs:
        run.rollout.distinct = 2
    one, eight = grown(*runs, policy=SeededPolicy, seed=3)
    assert msgspec.json.encode(one) == msgspec.json.encode(eight)
    assert sum(step.redrawn for tree in one for step in tree.steps) > 0


class _Slow(ScriptedPolicy):
    """Never answers the first root again: its siblings wait for it."""

    async def respond(self, request: Request) -> Reply:
        if not request.moment.copies[0].actions and self.asked.get((), 0) == 0:
            self.asked[()] = 1
            await asyncio.sleep(60)
        return await super().respond(request)


def test_a_deadline_ends_those_who_wait() -> None:
    tree = grow_word("chain", _Slow(lambda history, times: ("think", "a")), leaves=3, distinct=2, deadline_seconds=0.05)
    assert [step.outcome for step in tree.steps] == [Outcome.ERRORED]
    assert tree.ledger.generated_tokens == 6, "the two that answered"


def test_a_fault_of_ours_leaves_nobody_waiting() -> None:
    """The first root raises what is no policy error; its sibling is not left to wait for it for ever."""

    class Broken(_Recorder):
        async def respond(self, request: Request) -> Reply:
            if not self.seeds:
                self.seeds.append(request.seed)
                raise UsageError("no such thing")
            return await super().respond(request)

    async def work() -> Any:
        settings = Settings(rollout=rollout_settings(leaves=2, distinct=2))
        settings.prompt.style = "compact"
        actor = Actor(TASK, WordEngines(), Broken(), WordWorld(), settings, 0)  # type: ignore[arg-type]
        root = await actor.start()
        acts = (actor.act(root, index) for index in range(2))
        return await asyncio.wait_for(asyncio.gather(*acts, return_exceptions=True), 5)

    broken, reached = asyncio.run(work())
    assert isinstance(broken, UsageError)
    assert reached.step.action == "a"


@pytest.mark.parametrize("method", ["test-time-branch", "rare-tool", "criticality"])
def test_methods_that_never_draw_again_refuse_it(method: str) -> None:
    refused(
        lambda: check(Settings(rollout=rollout_settings(method=method, distinct=2))),
        names="rollout.distinct",
    )
    check(Settings(rollout=rollout_settings(method="spark", distinct=2)))
