"""dpepo: one response in several copies, worked out by hand, and what must hold whatever the policy says."""

from typing import Any

import msgspec
import pytest
from agentcli.credit.registry import make as make_credit
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.parallel import UNREADABLE as TOLD
from agentcli.prompts.parallel import write_parallel
from agentcli.records.trees import paths
from agentcli.records.types import Move, Outcome, Step, Tree, Validity
from growths import executed
from hypothesis import given, settings
from hypothesis import strategies as st
from refusal import refused
from scripted import Answering, ListedPolicy
from word_trees import grow_word
from word_world import ADMISSIBLE, WordEngines


def say(actions: dict[int, str]) -> str:
    return write_parallel("go", actions)


def one_trajectory(*responses: dict[int, str] | str, copies: int = 3, **settings: Any) -> tuple[Tree, ListedPolicy]:
    policy = ListedPolicy([text if isinstance(text, str) else say(text) for text in responses])
    return grow_word("dpepo", policy, leaves=1, copies=copies, **settings), policy


def short(move: Move) -> tuple[int, str, str, str, Outcome | None]:
    return move.copy, move.action, move.state, move.next_state, move.outcome


def test_a_response_acts_in_the_copies_it_names() -> None:
    """Copy 2 dies in step 2, so naming it in step 3 cannot be read; copy 3 wins in step 4, which ends the trajectory."""
    responses = ({1: "a", 3: "b"}, {2: "die", 1: "a"}, {1: "b", 2: "a"}, {3: "win", 1: "noop"})
    tree, _ = one_trajectory(*responses, max_steps=9)
    assert [[short(move) for move in step.moves] for step in tree.steps] == [
        [(1, "a", "start", "a", None), (3, "b", "start", "b", None)],
        [(1, "a", "a", "a a", None), (2, "die", "start", "die", Outcome.FAILURE)],
        [],
        [(1, "noop", "a a", "a a", None), (3, "win", "b", "b win", Outcome.SUCCESS)],
    ]
    assert [step.validity for step in tree.steps] == [*[Validity.VALID] * 2, Validity.MALFORMED, Validity.VALID]
    assert [step.outcome for step in tree.steps] == [None, None, None, Outcome.SUCCESS]
    assert [move.validity for move in tree.steps[3].moves] == [Validity.INADMISSIBLE, Validity.VALID]
    last = tree.steps[3]
    assert (last.state, last.next_state) == ("env_1: a a\nenv_2: die\nenv_3: b", "env_1: a a\nenv_2: die\nenv_3: b win")
    assert (last.action, last.reward, last.moves[1].admissible) == (None, 1.0, list(ADMISSIBLE))
    assert (last.moves[1].observation, last.moves[1].next_observation) == ("b", "b win")


@pytest.mark.parametrize(
    ("response", "moves"),
    [
        ("<THINK>go</Think><Parallel><ENV_2>a</env_2></PARALLEL>", [(2, "a")]),
        ("<think>go</think><parallel><env_3>b</env_3><env_1>a</env_1></parallel>", [(1, "a"), (3, "b")]),
        ("<think>go</think><env_2>a</env_2>", [(2, "a")]),
        ("<think>go</think><parallel><env_1>a</env_1><env_1>b</env_1></parallel>", []),
        ("<think>go</think><parallel><env_1>a</env_1><env_9>a</env_9></parallel>", []),
        (say(dict.fromkeys(range(1, 5), "a")), []),
        ("<think>go</think><action>a</action>", []),
        ("", []),
    ],
    ids=["upper case", "indices honoured", "no wrapper", "twice", "unknown", "more than K", "one environment", "empty"],
)
def test_which_copies_move(response: str, moves: list[tuple[int, str]]) -> None:
    """K 3. What is malformed in one place moves nothing anywhere, costs one step and leaves all states."""
    tree, _ = one_trajectory(response, {1: "win"})
    first = tree.steps[0]
    assert [(move.copy, move.action) for move in first.moves] == moves
    assert first.validity is (Validity.VALID if moves else Validity.MALFORMED)
    assert (first.state == first.next_state) == (not moves)
    assert tree.ledger.steps == max(1, len(moves)) + 1
    assert first.outcome is None


@pytest.mark.parametrize(
    ("responses", "max_steps", "outcomes"),
    [
        ([{1: "win"}], 1, [Outcome.SUCCESS]),
        ([{1: "win", 2: "win", 3: "die"}], 9, [Outcome.SUCCESS]),
        ([{1: "die", 2: "die"}, {3: "die"}], 2, [None, Outcome.FAILURE]),
        ([{1: "die", 2: "die", 3: "a"}, {3: "a"}], 2, [None, Outcome.TRUNCATED]),
        ([{1: "die", 2: "die", 3: "a"}, {3: "a"}, {3: "win"}], 3, [None, None, Outcome.SUCCESS]),
        ([""], 1, [Outcome.TRUNCATED]),
    ],
    ids=["at once", "in two", "the last ends at the horizon", "one goes on to it", "one goes on", "unread at it"],
)
def test_how_a_trajectory_ends(
    responses: list[dict[int, str] | str], max_steps: int, outcomes: list[Outcome | None]
) -> None:
    tree, _ = one_trajectory(*responses, max_steps=max_steps)
    assert [step.outcome for step in tree.steps] == outcomes


BEYOND = [{4: "a"}, {1: "a", 9: "win"}]


@pytest.mark.parametrize("response", BEYOND, ids=str)
def test_naming_a_copy_above_k_fails_the_task_where_it_is_so_set(response: dict[int, str]) -> None:
    """K 3. The step keeps what was sampled, moves nothing, counts once and is trained; without the setting it is malformed."""
    tree, policy = one_trajectory({1: "a"}, response, {1: "win"}, style="full", beyond="failure", max_steps=9)
    last = tree.steps[-1]
    assert [step.outcome for step in tree.steps] == [None, Outcome.FAILURE]
    assert (last.validity, last.moves, last.mask) == (Validity.MALFORMED, [], None)
    assert (last.token_ids, last.state) == ([1, 2], last.next_state)
    assert tree.ledger.steps == 2
    assert all("ends the task" in prompt for prompt in policy.prompts)
    lenient, policy = one_trajectory({1: "a"}, response, {1: "win"}, style="full", max_steps=9)
    assert [step.outcome for step in lenient.steps] == [None, None, Outcome.SUCCESS]
    assert not any("ends the task" in prompt for prompt in policy.prompts)


@pytest.mark.parametrize(
    "response",
    ["<think>go</think><parallel><env_1>a</env_1><env_1>b</env_1></parallel>", {2: "a"}, "no tags", {0: "a"}],
    ids=["twice", "ended", "unreadable", "below"],
)
def test_what_else_is_malformed_does_not_fail_the_task(response: dict[int, str] | str) -> None:
    tree, _ = one_trajectory({2: "die"}, response, {1: "win"}, beyond="failure", max_steps=9)
    assert [step.outcome for step in tree.steps] == [None, None, Outcome.SUCCESS]
    assert tree.steps[1].validity is Validity.MALFORMED


def test_every_copy_is_charged() -> None:
    """2 + 2 + 1 (nothing was readable) + 2 steps of the environment, four prompts of 5 tokens, answers of 2."""
    responses = ({1: "a", 3: "b"}, {2: "die", 1: "a"}, "no tags", {3: "win", 1: "b"})
    ledger = one_trajectory(*responses, max_steps=9)[0].ledger
    assert (ledger.steps, ledger.leaves, ledger.forks) == (7, 1, 0)
    assert (ledger.prompt_tokens, ledger.generated_tokens, ledger.shared_prompt_tokens) == (20, 8, 0)


def test_the_episode_fails_when_no_copy_is_left_and_is_cut_at_the_horizon() -> None:
    dead, _ = one_trajectory({1: "die"}, {2: "die", 3: "die"}, max_steps=9)
    assert [step.outcome for step in dead.steps] == [None, Outcome.FAILURE]
    cut, _ = one_trajectory({1: "a"}, {1: "die"}, max_steps=2)
    assert [step.outcome for step in cut.steps] == [None, Outcome.TRUNCATED]


def test_an_error_in_one_copy_is_an_errored_leaf() -> None:
    tree, _ = one_trajectory({3: "crash", 2: "win", 1: "a"})
    (step,) = tree.steps
    assert (step.outcome, step.error) == (Outcome.ERRORED, "env_3: the engine died")
    assert [move.copy for move in step.moves] == [1, 2]
    assert tree.ledger.steps == 2, "two copies moved"
    unopened = grow_word("dpepo", ListedPolicy([]), engines=WordEngines(broken="no such game"), leaves=2)
    assert [step.error for step in unopened.steps] == ["no such game"] * 2
    assert unopened.ledger.steps == 0


def test_a_step_that_did_nothing_anywhere_is_inadmissible() -> None:
    tree, _ = one_trajectory({1: "noop", 2: "sing"}, max_steps=1)
    assert tree.steps[0].validity is Validity.INADMISSIBLE


def test_the_prompt_grows_with_every_copy() -> None:
    tree, policy = one_trajectory({1: "a", 3: "b"}, {2: "die"}, "?", {1: "win"}, style="full", max_steps=9)
    first, second, third, fourth = policy.prompts
    assert "in every copy: a; b; win" in first
    assert "env_1\n1. Action: a\n   Observation: a\n" in second
    assert all(part in second for part in ("Not acted in", " yet: env_2"))
    assert all(part in third for part in ("no action is possible", " there: env_2"))
    assert "Steps before the last:\nenv_1\n1. Action: a" in third
    assert TOLD in fourth
    assert TOLD not in third
    assert [step.prompt for step in tree.steps] == policy.prompts


def test_the_group_shares_its_first_prompt() -> None:
    policy = ListedPolicy([say({1: "win"}), say({2: "die", 1: "die"})])
    tree = grow_word("dpepo", policy, leaves=2, copies=2)
    assert [step.outcome for step in tree.steps] == [Outcome.SUCCESS, Outcome.FAILURE]
    assert {step.parent for step in tree.steps} == {None}
    assert tree.ledger.shared_prompt_tokens == 5


def test_an_unknown_prompt_style_is_refused() -> None:
    refused(
        lambda: one_trajectory({1: "a"}, style="react"), names=("prompt.style", "parallel-react"), remedy="parallel-"
    )


def test_its_credit_is_computed_from_the_moves() -> None:
    """A success whose second step repeats an action in its copy gets less there; alpha .8, by hand, eq. 3-5 and 8:

    step 1: R_action 1 + 1, R_transition 1 + 1: 2. step 2 (again noop in copy 1, alone): .8 + 1 + .95 + 1, halved: 1.875.
    """
    replies = [say({1: "noop", 2: "a"}), say({1: "noop"}), say({2: "win"}), say({1: "die", 2: "die"})]
    policy = _Lined([replies[:3], replies[3:]])
    tree = grow_word("dpepo", policy, leaves=2, copies=2)
    _, assign, switches = make_credit({"method": "dpepo"})
    parts = [credit.parts["step"] for credit in assign(tree, switches).steps]
    assert parts[:3] == pytest.approx([2.0, 1.875, 2.0])


class _Lined(Answering):
    """One list of texts per trajectory, by the first seed that asks."""

    def __init__(self, texts: list[list[str]]) -> None:
        self._texts = [iter(row) for row in texts]
        self._rows: dict[int, int] = {}

    async def respond(self, request: Request) -> Reply:
        row = self._rows.setdefault(request.episode_seed, len(self._rows))
        return Reply(text=next(self._texts[row]))


actions = st.sampled_from([*"aab", "win", "die", "noop", "sing", "crash"])
response = st.one_of(
    st.dictionaries(st.integers(1, 4), actions, min_size=1, max_size=4).map(say),
    st.sampled_from(["", "<think>x</think>", "<env_1>a</env_1>"]),
)


@settings(max_examples=80, deadline=None)
@given(responses=st.lists(response, min_size=6, max_size=6), copies=st.integers(1, 4))
def test_what_holds_whatever_the_policy_says(responses: list[str], copies: int) -> None:
    tree, _ = one_trajectory(*responses, copies=copies, max_steps=6)
    (trajectory,) = paths(tree)
    states: dict[int, str] = dict.fromkeys(range(1, copies + 1), "start")
    ended: set[int] = set()
    for before, step in zip([None, *trajectory], trajectory, strict=False):
        assert before is None or before.outcome is None
        assert before is None or step.observation == before.next_observation
        for move in step.moves:
            assert move.copy in states
            assert move.copy not in ended
            assert move.state == states[move.copy]
            states[move.copy] = move.next_state
            if move.outcome is not None:
                ended.add(move.copy)
    assert trajectory[-1].outcome is expected_outcome(trajectory, len(ended), copies)
    assert tree.ledger.steps == sum(map(executed, trajectory))
    assert msgspec.json.decode(msgspec.json.encode(tree), type=Tree) == tree


def expected_outcome(trajectory: list[Step], ended: int, copies: int) -> Outcome:
    last = trajectory[-1]
    if last.error is not None:
        return Outcome.ERRORED
    if any(move.outcome is Outcome.SUCCESS for move in last.moves):
        return Outcome.SUCCESS
    return Outcome.FAILURE if ended == copies else Outcome.TRUNCATED
