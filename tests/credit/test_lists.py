"""Plain lists get the credit of assign-credit: the same functions, whatever shape the lists have."""

import doctest
import json
import re
from typing import Any

import numpy as np
import pytest
from agentcli.credit import lists
from agentcli.credit.lists import NEEDS, step_advantages, token_advantages
from agentcli.credit.registry import METHODS, make, switches_of
from agentcli.errors import AgentCliError, DataError
from agentcli.records.step_rows import advantages
from agentcli.records.types import Outcome, Tree
from credit_trees import random_trees
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

GROUP: dict[str, Any] = {
    "groups": ["q", "q", "q"],
    "rewards": [1.0, 0.0, 0.0],
    "success": [True, False, False],
    "states": [["hall", "attic"], ["hall", "cellar"], ["hall", "attic"]],
}
NOTED = {"best": 8.0, "chosen": 6.0, "process_ok": 1.0}


def as_lists(tree: Tree) -> dict[str, Any]:
    """One rollout that branches: everything that a tree says and lists can say."""
    ends = {Outcome.SUCCESS: True, Outcome.FAILURE: False}
    steps = tree.steps
    errored = [step.outcome is Outcome.ERRORED for step in steps]
    return {
        "groups": [tree.task.id],
        "rewards": [[None if broke else step.reward for step, broke in zip(steps, errored, strict=True)]],
        "success": [[ends.get(step.outcome) for step in steps]],
        "parents": [[step.parent for step in steps]],
        "states": [[step.state for step in steps]],
        "next_states": [[step.next_state for step in steps]],
        "actions": [[step.action for step in steps]],
        "valid": [[step.validity == "valid" for step in steps]],
        "tags": [[step.tag for step in steps]],
        "values": [[step.value for step in steps]],
        "scores": [[step.score for step in steps]],
        "notes": [[NOTED for _ in steps]],
    }


def test_the_examples_of_the_docstrings_are_true() -> None:
    result = doctest.testmod(lists)
    assert (result.failed, result.attempted) == (0, 3)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(tree=random_trees(), outcome=st.sampled_from(["score", "success"]))
def test_a_tree_as_lists_has_the_tree_s_credit(method: str, tree: Tree, outcome: str) -> None:
    switches = {"outcome": outcome} if "outcome" in switches_of(method) else {}
    for step in tree.steps:
        step.moves = []
        step.notes = dict(NOTED)
        if step.validity == "malformed":
            step.action = None
        elif step.action is None:
            step.action = "wait"
    _, assign, chosen = make({"method": method, **switches})
    (found,) = step_advantages(as_lists(tree), method, **switches)
    expected = advantages(assign(tree, chosen))
    assert found == [expected[step.id] for step in tree.steps]


@pytest.mark.parametrize("method", ["grpo", "rloo", "gigpo", "rewardflow", "treerl"])
def test_rollouts_of_a_group_are_one_tree_and_groups_are_apart(method: str) -> None:
    alone = step_advantages(GROUP, method)
    both = {name: [*column, *column] for name, column in GROUP.items()}
    both["groups"] = ["q", "q", "q", 7, 7, 7]
    assert step_advantages(both, method) == [*alone, *alone]
    mixed = {name: [column[n] for n in (3, 0, 4, 1, 2, 5)] for name, column in both.items()}
    assert step_advantages(mixed, method) == [alone[n] for n in (0, 0, 1, 1, 2, 2)]


def test_rewardflow_by_hand() -> None:
    """The attic leads to the success (R 0.9), the cellar does not: from the hall, +0.09 twice against -0.81."""
    (right, _), (wrong, _), (late, missed) = step_advantages(GROUP, "rewardflow", scale="none", normalise="mean")
    assert right == pytest.approx(0.3 + 2 / 3)
    assert late == pytest.approx(0.3 - 1 / 3)
    assert wrong == pytest.approx(-0.6 - 1 / 3)
    assert missed == pytest.approx(-0.5 - 1 / 3)


def test_a_list_of_states_is_what_the_agent_saw_too() -> None:
    assert step_advantages(GROUP, "rewardflow", state="observation") == step_advantages(GROUP, "rewardflow")
    ended = {**GROUP, "next_states": [["attic", "end"], [None, None], [None, "end"]]}
    assert step_advantages(ended, "rewardflow", state="observation") == step_advantages(ended, "rewardflow")


def test_a_broken_rollout_is_left_out_of_the_group() -> None:
    broken = {"groups": [1, 1, 1], "rewards": [1.0, 0.0, None]}
    assert step_advantages(broken, "rloo") == [[1.0], [-1.0], [None]]
    assert token_advantages([[1], [1], [1]], broken, "rloo") == [[1.0], [-1.0], [0.0]]


def test_a_run_of_a_mask_is_a_step_and_so_is_a_row_of_zeros() -> None:
    masks = [[1, 1, 0, 0, 1], [1, 0, 2, 2, 0], [0, 1, 1, 2, 2]]
    steps = step_advantages(GROUP, "rewardflow")
    expected = [[a, a, 0, 0, b] if row == 0 else [a, 0, b, b, 0] for row, (a, b) in enumerate(steps)]
    expected[2] = [0, steps[2][0], steps[2][0], steps[2][1], steps[2][1]]
    assert token_advantages(masks, GROUP, "rewardflow") == expected
    plain = {name: GROUP[name] for name in ("groups", "rewards")}
    assert token_advantages([[1], [0], [1]], plain, "rloo") == [[1.0], [0.0], [-0.5]]


def test_messages_are_steps_and_observations_may_be_their_states() -> None:
    chats = [
        [
            {"role": "system", "content": "Play."},
            {"role": "user", "content": "hall"},
            {"role": "assistant", "content": move},
            {"role": "tool", "content": room},
            {"role": "assistant", "content": [{"type": "text", "text": "stop"}]},
        ]
        for move, room in (("up", "attic"), ("down", "cellar"), ("up", "attic"))
    ]
    spoken = {**GROUP, "messages": chats, "states": "observation"}
    assert step_advantages(spoken, "rewardflow") == step_advantages(GROUP, "rewardflow")
    assert step_advantages({**spoken, "states": None}, "grpo") == step_advantages(GROUP, "grpo")


def called(*names: str) -> list[dict[str, Any]]:
    """A chat whose answers are tool calls and nothing else."""
    chat: list[dict[str, Any]] = [{"role": "user", "content": "q"}]
    for name in names:
        calls = [{"id": "1", "type": "function", "function": {"name": name, "arguments": "{}"}}]
        chat.append({"role": "assistant", "content": None, "tool_calls": calls})
        chat.append({"role": "tool", "tool_call_id": "1", "content": "r"})
    return chat


def test_tool_calls_are_actions() -> None:
    plain = {"groups": [1, 1], "rewards": [1, 0], "states": [["s", "t"], ["s", "t"]]}
    spoken = {**plain, "messages": [called("a", "b"), called("c", "c")]}
    acted = {**plain, "actions": [["a", "b"], ["c", "c"]]}
    assert step_advantages(spoken, "dpepo") == step_advantages(acted, "dpepo")
    broken = {**spoken, "messages": [called("a", "b"), [{"role": "assistant", "tool_calls": [7]}]]}
    with pytest.raises(DataError, match=r"^rollouts\.messages\[1\]\[0\]\.tool_calls\[0\]: expected"):
        step_advantages(broken, "dpepo")


@pytest.mark.parametrize(("method", "names"), NEEDS.items())
def test_a_method_names_the_list_that_it_misses(method: str, names: tuple[str, ...]) -> None:
    whole = {
        "groups": [1],
        "rewards": [1.0],
        "success": [True],
        "states": [["a"]],
        "actions": [["go"]],
        "tags": [["planning"]],
        "values": [[0.5]],
        "scores": [[0.5]],
        "notes": [[NOTED]],
    }
    assert step_advantages(whole, method)
    for name in names:
        without = {key: column for key, column in whole.items() if key != name}
        with pytest.raises(DataError, match=f"^rollouts.{name}: is missing; {method} reads it"):
            step_advantages(without, method)


def test_what_the_registry_knows_of_a_method_s_needs_is_in_the_table() -> None:
    for method, facts in METHODS.items():
        assert facts.needs_values == ("values" in NEEDS.get(method, ()))
        assert facts.needs_scores == ("scores" in NEEDS.get(method, ()))


BAD: list[tuple[dict[str, Any], str]] = [
    ({"reward": [1.0]}, "rollouts.reward: no such setting; did you mean rewards?"),
    ({"rewards": [1.0]}, "rollouts.rewards: is of 1 rollouts, groups of 3"),
    ({"rewards": [1.0, "0", 0.0]}, "rollouts.rewards[1]: expected"),
    ({"rewards": [1.0, float("nan"), 0.0]}, "rollouts.rewards[1]: expected float"),
    ({"rewards": [1.0, [0.0, 1e300], 0.0]}, "rollouts.rewards[1][1]: expected float <= 1000000000.0"),
    ({"values": [[0.0, 0.0], [0.0, float("inf")], [0.0, 0.0]]}, "rollouts.values[1][1]: expected float"),
    ({"scores": [[0.0, 0.0], [0.0, 0.0], [float("nan"), 0.0]]}, "rollouts.scores[2][0]: expected float"),
    ({"messages": [[{"role": "user"}]] * 3}, "rollouts.messages[0]: no message is the assistant's"),
    ({"rewards": [1.0, 0.0, [0.0]]}, "rollouts.states[2]: is of 2 steps, not of 1"),
    ({"states": [["a", "b"], ["a", 3], ["a", "b"]]}, "rollouts.states[1][1]: expected str"),
    ({"states": [["a", "b"], ["a"], []]}, "rollouts.states[2]: is of 0 steps"),
    ({"states": "text"}, "rollouts.states: is a list, or 'observation' where messages are given; it is 'text'"),
    ({"valid": [[True]] * 3}, "rollouts.valid[0]: is of 1 steps, not of 2"),
    ({"parents": [[None, 1]] * 3}, "rollouts.parents[0][1]: 1 is no earlier step"),
    ({"parents": [[None, None]] * 3}, "rollouts.rewards[0]: the rollout branches; give one entry a step"),
    ({"success": [True, None, False]}, "rollouts.next_states[1][1]: is missing; the rollout was cut off"),
]


@pytest.mark.parametrize(("lists", "line"), BAD, ids=[line for _, line in BAD])
def test_bad_lists_are_refused_in_one_line(lists: dict[str, Any], line: str) -> None:
    with pytest.raises(AgentCliError) as refused:
        step_advantages({**GROUP, **lists}, "rewardflow")
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("rollouts", [None, [GROUP]])
def test_lists_without_names_are_refused(rollouts: Any) -> None:
    with pytest.raises(DataError, match=r"^rollouts: is a mapping of lists"):
        step_advantages(rollouts, "rloo")
    with pytest.raises(DataError, match=r"^rollouts: is a mapping of lists"):
        token_advantages([[1]], rollouts, "rloo")


def test_numbers_and_arrays_of_numpy_are_numbers() -> None:
    groups, rewards = np.array([7, 7]), np.array([1, 0.5], dtype=np.float32)
    wanted = step_advantages({"groups": [7, 7], "rewards": [1.0, 0.5], "steps": [2, 1]}, "rloo")
    assert step_advantages({"groups": groups, "rewards": rewards, "steps": np.array([2, 1])}, "rloo") == wanted
    assert step_advantages({"groups": (7, 7), "rewards": [*rewards], "steps": [2, 1]}, "rloo") == wanted
    masks = np.array([[1, 0, 2], [0, 1, 0]])
    assert token_advantages(masks, {"groups": groups, "rewards": rewards}, "rloo") == [
        [0.5, 0.0, 0.5],
        [0.0, -0.5, 0.0],
    ]


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(DataError, match=r"^rollouts: holds a object"):
        step_advantages({"groups": [7, 7], "rewards": [object(), 0.5]}, "rloo")


def test_numbers_of_numpy_are_switches_and_what_never_ends_is_refused() -> None:
    exact = step_advantages(GROUP, "rewardflow", gamma=0.9)
    assert step_advantages(GROUP, "rewardflow", gamma=np.float64(0.9)) == exact
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(DataError, match=r"^rollouts: lists in lists without an end"):
        step_advantages({"groups": endless, "rewards": [1]}, "rloo")


@pytest.mark.parametrize(
    ("lists", "method", "line"),
    [
        ({"groups": [7], "rewards": [1]}, None, "method: is a name, not NoneType"),
        ({}, "grpo", "rollouts.groups: is missing"),
        ({"groups": [7], "rewards": [1], "messages": []}, "grpo", "rollouts.messages: is of 0 rollouts, groups of 1"),
    ],
)
def test_the_list_that_is_wrong_is_the_one_that_is_named(lists: dict[str, Any], method: Any, line: str) -> None:
    with pytest.raises(AgentCliError, match=f"^{re.escape(line)}"):
        step_advantages(lists, method)


def test_masks_tell_the_steps() -> None:
    with pytest.raises(AgentCliError, match=r"^rollouts\.steps: .*leave it out"):
        token_advantages([[1]], {"groups": [7], "rewards": [1], "steps": [1]}, "grpo")


def test_masks_are_of_as_many_rollouts_as_groups() -> None:
    with pytest.raises(DataError, match=r"^masks: is of 3 rollouts, groups of 2"):
        token_advantages([[1], [1], [1]], {"groups": [7, 7], "rewards": [1, 0]}, "rloo")


@pytest.mark.parametrize("groups", [None, 7])
def test_groups_that_are_no_list_are_named(groups: Any) -> None:
    with pytest.raises(AgentCliError, match=r"^rollouts\.groups: "):
        token_advantages([[1], [1]], {"groups": groups, "rewards": [1, 0]}, "rloo")


@pytest.mark.parametrize(
    ("masks", "place"),
    [(None, ": "), ([1, 0, 1], "[0]: "), ([[1], [None]], "[1][0]: "), ([[1, float("nan")], [1]], "[0][1]: ")],
)
def test_masks_are_lists_of_lists(masks: Any, place: str) -> None:
    with pytest.raises(DataError, match=f"^masks{re.escape(place)}.*a list of lists"):
        token_advantages(masks, GROUP, "rloo")


def test_where_a_rollout_was_cut_off_counts_for_rewardflow_alone() -> None:
    """The others value no state, so they do not ask for it."""
    cut = {**GROUP, "success": [True, None, None]}
    assert step_advantages(cut, "gigpo") == step_advantages(GROUP, "gigpo")
    ended = {**cut, "next_states": [[None, None], [None, "pit"], [None, "pit"]]}
    assert step_advantages(ended, "rewardflow") == step_advantages(GROUP, "rewardflow")


def test_a_method_that_asks_who_succeeded_is_told() -> None:
    with pytest.raises(DataError, match=r"^rollouts\.success: is missing; grpo reads it"):
        step_advantages({"groups": [1, 1], "rewards": [1.0, 0.0]}, "grpo", outcome="success")
    judged = {"groups": [1], "rewards": [1.0], "notes": [[NOTED]]}
    with pytest.raises(DataError, match=r"^rollouts\.success: is missing; rare-tool reads it"):
        step_advantages(judged, "rare-tool", drop_wrong=True)


@pytest.mark.parametrize("switches", [{"form": "release"}, {"transition_reward": False}])
def test_dpepo_needs_states_only_where_it_compares_them(switches: dict[str, Any]) -> None:
    acted = {"groups": [1, 1], "rewards": [1, 0], "actions": [["a", "b"], ["c", "c"]]}
    placed = {**acted, "states": [["s", "t"], ["s", "t"]]}
    assert step_advantages(acted, "dpepo", **switches) == step_advantages(placed, "dpepo", **switches)


def test_a_fault_that_the_method_finds_has_a_remedy_for_lists() -> None:
    attempts: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
        ({**GROUP, "states": [["", "attic"]] * 3}, "gigpo", {}),
        (GROUP, "carl", {"first_phase": "none"}),
    ]
    for rollouts, method, switches in attempts:
        with pytest.raises(DataError, match=r"^rollouts: task q: .*; correct the lists") as refused:
            step_advantages(rollouts, method, **switches)
        assert "--" not in str(refused.value)


def test_the_world_s_own_rewards_are_read_step_by_step() -> None:
    """Returns by hand: 0.5 + 1, then 1; and 0 throughout. V is 0.5 everywhere and lambda 1."""
    earned = {"groups": [1, 1], "rewards": [[0.5, 1.0], [0.0, 0.0]], "values": [[0.5, 0.5], [0.5, 0.5]]}
    gains = step_advantages(earned, "ppo", rewards="environment", gae_lambda=1.0)
    assert gains == [[1.0, 0.5], [-0.5, -0.5]]
    placed = {**earned, "states": [["a", "b"], ["a", "b"]]}
    switches = {"rewards": "environment", "gamma": 1.0, "normalise": "mean"}
    assert step_advantages(placed, "gigpo", **switches) == [[1.5, 1.25], [-1.5, -1.25]]


def test_unknown_methods_and_switches_have_the_hints_of_assign_credit() -> None:
    with pytest.raises(AgentCliError, match="did you mean grpo"):
        step_advantages(GROUP, "grpp")
    with pytest.raises(AgentCliError, match="gama"):
        step_advantages(GROUP, "rewardflow", gama=0.5)


def test_lists_may_come_from_json() -> None:
    assert step_advantages(json.loads(json.dumps(GROUP)), "gigpo") == step_advantages(GROUP, "gigpo")
