"""rewardflow and its state graph in the paper form: arithmetic done by hand."""

import math
from typing import Any

import pytest
from agentcli.credit.graph import StateGraph, build
from agentcli.credit.release.rewardflow import TERMINAL, only_looks, release_walk
from agentcli.credit.rewardflow import RewardFlowSettings, assign
from agentcli.credit.survey import survey_of
from agentcli.errors import UsageError
from agentcli.records.types import Credit, StopReason, Validity
from credit_trees import ERRORED, FAILURE, SUCCESS, TRUNCATED, advantages, chains, step, tree, walk

ONLY_ACTION = RewardFlowSettings(alpha_traj=0.0)
PLAIN = RewardFlowSettings(alpha_traj=0.0, scale="none")


def part(credit: Credit, name: str) -> list[float]:
    return [row.parts[name] for row in credit.steps]


def values(graph: StateGraph) -> dict[tuple[str, str], float]:
    return {(node.kind, node.key): node.value for node in graph.nodes}


def test_worked_example() -> None:
    # a -> b -> c -> success d and a -> b -> e, truncated. R: a .729, b .81, c .9, d 1, e 0.
    # Gains: a->b .081 twice (group a: all equal, 0); b->c .09, b->e -.81 (mean -.36, std .45 sqrt 2); c->d alone, 0.
    credit = assign(chains([walk("abcd", SUCCESS), walk("abe", TRUNCATED)]), RewardFlowSettings())
    assert part(credit, "value") == pytest.approx([0.729, 0.81, 0.9, 0.729, 0.81])
    assert part(credit, "next_value") == pytest.approx([0.81, 0.9, 1.0, 0.81, 0.0])
    assert part(credit, "gain") == pytest.approx([0.081, 0.09, 0.1, 0.081, -0.81])
    action = 0.45 / (0.45 * math.sqrt(2) + 1e-6)
    assert part(credit, "action") == pytest.approx([0, action, 0, 0, -action])
    # Outcomes 1 0: mean 1/2, std sqrt(1/2).
    outcome = 0.5 / (math.sqrt(0.5) + 1e-6)
    assert part(credit, "trajectory") == pytest.approx([outcome] * 3 + [-outcome] * 2)
    assert advantages(credit) == pytest.approx(
        [outcome, outcome + action, outcome, -outcome, -outcome - action], abs=1e-12
    )


def test_scale_none_and_weights() -> None:
    grown = chains([walk("abcd", SUCCESS), walk("abe", TRUNCATED)])
    credit = assign(grown, RewardFlowSettings(scale="none", alpha_action=2.0, alpha_traj=0.5, normalise="mean"))
    assert part(credit, "action") == pytest.approx([0, 0.9, 0, 0, -0.9])
    assert part(credit, "trajectory") == pytest.approx([0.25] * 3 + [-0.25] * 2)


def test_success_and_failure_are_nodes_of_their_own() -> None:
    # Both end in d, one as a success; a third trajectory passes through d: three nodes, only one of them worth 1.
    graph = build(chains([walk("abd", SUCCESS), walk("abd", FAILURE), walk("adc", TRUNCATED)]))
    node_values = values(graph)
    assert node_values["success", "d"] == 1.0
    assert node_values["failure", "d"] == 0.0
    assert node_values["state", "d"] == 0.0
    assert node_values["state", "b"] == pytest.approx(0.9)


def test_shortest_way_out_of_all_trajectories_counts() -> None:
    # The long way round a b c d* is cut short at b -> d* by the other trajectory; the failed one profits from both.
    graph = build(chains([walk("abcd", SUCCESS), walk("xbd", SUCCESS), walk("cbx", TRUNCATED)]))
    hops = {node.key: node.hops for node in graph.nodes}
    assert hops == {"a": 2, "b": 1, "c": 1, "d": 0, "x": 2}


def test_mean_distance() -> None:
    # From a: success c after 1 and success d after 2, mean 1.5; from b only d, after 1.
    grown = chains([walk("ac", SUCCESS), walk("abd", SUCCESS)])
    graph = build(grown, distance="mean")
    assert {node.key: node.hops for node in graph.nodes} == {"a": 1.5, "b": 1, "c": 0, "d": 0}
    assert values(graph)["state", "a"] == pytest.approx(0.9**1.5)
    assert values(build(grown))["state", "a"] == pytest.approx(0.9)


def test_pruned_steps_carry_their_state_over() -> None:
    # b is reached, a malformed answer follows (no change), then the goal.
    grown = chains([walk("abbc", SUCCESS, invalid={1}), walk("abc", SUCCESS)])
    credit = assign(grown, PLAIN)
    assert part(credit, "gain") == pytest.approx([0.09, 0.0, 0.1, 0.09, 0.1])
    # Group b: the two moves to c, with equal gains. The malformed step is in no group (RewardFlow eq. 5).
    assert part(credit, "action") == [0.0] * 5
    # With all steps, group b is -0.1 (penalty), 0.1, 0.1: mean 1/30.
    everyone = assign(grown, RewardFlowSettings(alpha_traj=0.0, scale="none", group="all"))
    assert part(everyone, "action") == pytest.approx([0, -0.1 - 1 / 30, 0.1 - 1 / 30, 0, 0.1 - 1 / 30])


@pytest.mark.parametrize("penalty", ["inside", "outside"])
@pytest.mark.parametrize("noise", ["look", "refused"])
def test_steps_outside_t_neither_belong_to_a_group_nor_move_it(noise: str, penalty: str) -> None:
    # Eq. 5 and 7 by hand: gains g and h of two members compare as +-1/sqrt(2), whatever stands still beside them.
    settings: dict[str, Any] = {"alpha_traj": 0.0, "penalty": penalty}
    for count in (0, 10):
        grown = chains([walk("bc", SUCCESS), walk("ba", TRUNCATED), walk("b" * (count + 2), TRUNCATED)])
        for idle in grown.steps[2:]:
            if noise == "look":
                idle.looked = True
            else:
                idle.validity = Validity.INADMISSIBLE
        credit = assign(grown, RewardFlowSettings(**settings))
        assert part(credit, "action")[:2] == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-5)
        assert part(credit, "action")[2:] == [0.0] * (count + 1)
    # With all steps in the group, ten that look push the move away to -3.16.
    padded = part(assign(grown, RewardFlowSettings(group="all", **settings)), "action")
    if noise == "look":
        assert padded[1] < -3 < 0 < padded[2] < padded[0]


def test_a_step_that_is_in_no_group_costs_its_penalty_once() -> None:
    grown = chains([walk("abc", SUCCESS), walk("abbd", TRUNCATED, invalid={1})])
    inside = assign(grown, RewardFlowSettings())
    assert part(inside, "action")[3] == 0.0
    outside = assign(grown, RewardFlowSettings(penalty="outside"))
    by_outcome = part(outside, "trajectory")[3]
    assert outside.steps[3].advantage == pytest.approx(by_outcome - 0.1)


@pytest.mark.parametrize("settings", [{}, {"group": "all", "pruning": False}])
def test_a_no_op_penalty_acts_on_pruned_members_alone(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no_op_penalty"):
        RewardFlowSettings(no_op_penalty=0.2, **settings)


@pytest.mark.parametrize("settings", [{"group": "all"}, {"pruning": False}])
def test_a_step_that_was_never_asked_is_in_no_group(settings: dict[str, Any]) -> None:
    # The third trajectory ends in b because its prompt grew too long: nobody took a step there.
    grown = chains([walk("bc", SUCCESS), walk("ba", TRUNCATED), walk("bb", TRUNCATED)])
    grown.steps[2].stop = StopReason.OVERLONG
    credit = assign(grown, RewardFlowSettings(alpha_traj=0.0, **settings))
    assert part(credit, "action")[:2] == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-5)


def test_a_step_that_was_never_asked_leads_to_no_state() -> None:
    # Under `state: observation` its next state is the empty text; here it is x.
    grown = chains([walk("abc", SUCCESS), walk("abx", TRUNCATED)])
    grown.steps[3].stop = StopReason.OVERLONG
    graph = build(grown)
    assert graph.pruned == [False, False, False, True]
    assert [node.key for node in graph.nodes] == ["a", "b", "c"]
    assert (graph.size.nodes, graph.size.edges) == (3, 2)


def test_looking_is_pruned_and_the_walk_goes_on_from_before_it() -> None:
    fields = walk("abzc", SUCCESS)
    fields[1]["looked"] = True
    grown = chains([fields, walk("abc", SUCCESS)])
    graph = build(grown)
    assert [graph.nodes[n].key for n in graph.sources] == ["a", "b", "b", "a", "b"]
    assert graph.pruned == [False, True, False, False, False]
    assert "z" not in {node.key for node in graph.nodes}
    assert part(assign(grown, PLAIN), "gain") == pytest.approx([0.09, 0.0, 0.1, 0.09, 0.1])
    whole = build(grown, pruning=False)
    assert "z" in {node.key for node in whole.nodes}


def test_an_invalid_step_is_pruned_even_where_the_key_changed() -> None:
    # A world whose key holds the answer: z is "I do not understand that.", reached by an inadmissible action.
    graph = build(chains([walk("azbc", SUCCESS, invalid={0})]))
    assert graph.pruned == [True, False, False]
    assert {node.key: node.hops for node in graph.nodes} == {"a": 2, "b": 1, "c": 0}


@pytest.mark.parametrize("action", ["look", "inventory", "examine desk 1", "Nothing happens."])
def test_the_world_says_what_only_looked_and_no_word_does(action: str) -> None:
    fields = walk("abc", TRUNCATED)
    fields[0].update(action=action, next_observation=action)
    assert build(chains([fields])).pruned == [False, False]
    fields[0]["looked"] = True
    assert build(chains([fields])).pruned == [True, False]


@pytest.mark.parametrize("action", ["look", " LOOK ", "inventory", "examine desk 1"])
def test_the_release_prunes_by_its_words(action: str) -> None:
    assert only_looks(action)


@pytest.mark.parametrize("action", ["look at lamp", "examined", "go inventory", "", None])
def test_other_actions_are_not_among_them(action: str | None) -> None:
    assert not only_looks(action)


def test_the_release_prunes_what_nothing_happened_to() -> None:
    fields = walk("abc", SUCCESS)
    fields[0]["next_observation"] = " Nothing happens."
    grown = chains([fields])
    settings = RewardFlowSettings(form="release")
    targets, transitions = release_walk(grown, survey_of(grown, settings), settings)
    assert targets == ["b", TERMINAL]
    assert transitions == [("a", TERMINAL, 1.0)]


@pytest.mark.parametrize("looked", [True, False])
@pytest.mark.parametrize("validity", list(Validity))
def test_the_step_that_ends_the_episode_is_never_pruned(looked: bool, validity: Validity) -> None:
    fields = walk("abc", SUCCESS)
    fields[-1].update(looked=looked, validity=validity, next_observation="Nothing happens.", next_state="b")
    graph = build(chains([fields]))
    assert graph.pruned == [False, False]
    assert values(graph) == {
        ("state", "a"): pytest.approx(0.81),
        ("state", "b"): pytest.approx(0.9),
        ("success", "b"): 1.0,
    }


def test_no_success_gives_no_action_advantage() -> None:
    credit = assign(chains([walk("abbc", FAILURE, invalid={1}), walk("abd", TRUNCATED)]), RewardFlowSettings())
    assert part(credit, "action") == [0.0] * 5
    assert credit.steps[1].advantage is not None
    assert credit.steps[1].advantage < 0 < (credit.steps[0].advantage or 0)


def test_errored_leaves_leave_no_trace_in_the_graph() -> None:
    sound = chains([walk("abc", SUCCESS), walk("abd", TRUNCATED)])
    broken = chains([walk("abc", SUCCESS), walk("abd", TRUNCATED), walk("axc", ERRORED)])
    assert assign(broken, RewardFlowSettings()).steps[:4] == assign(sound, RewardFlowSettings()).steps
    assert [row.masked for row in assign(broken, RewardFlowSettings()).steps[4:]] == ["errored", "errored"]
    assert "x" not in {node.key for node in build(broken).nodes}


def test_no_op_beats_a_step_back_unless_told_otherwise() -> None:
    # From b: on to the goal c, back to a, or standing still. R: a .81, b .9, c 1.
    grown = chains([walk("abc", SUCCESS), walk("abac", TRUNCATED), walk("abbd", TRUNCATED)])
    onward, back, still = 1, 3, 6
    gain = part(assign(grown, PLAIN), "gain")
    assert (gain[onward], gain[back], gain[still]) == pytest.approx((0.1, -0.09, 0.0))
    discounted = part(assign(grown, RewardFlowSettings(gain="discounted")), "gain")
    assert (discounted[onward], discounted[back], discounted[still]) == pytest.approx((0.0, -0.171, -0.09))
    action = part(
        assign(grown, RewardFlowSettings(alpha_traj=0.0, scale="none", group="all", no_op_penalty=0.2)), "action"
    )
    assert action[still] < action[back] < action[onward]


def test_a_shared_step_counts_once_merged_and_per_leaf_duplicated() -> None:
    # Step 0 (a -> b) lies under two leaves; step 3 (a -> g) stands beside it. R: a .81, b .9, g 0.
    steps = [
        step(0, None, state="a", next_state="b"),
        step(1, 0, state="b", next_state="c", outcome=SUCCESS),
        step(2, 0, state="b", next_state="f", outcome=TRUNCATED),
        step(3, None, state="a", next_state="g", outcome=TRUNCATED),
    ]
    merged = assign(tree(*steps), PLAIN)
    # Group a: .09 and -.81, mean -.36.
    assert part(merged, "action")[0] == pytest.approx(0.45)
    doubled = assign(tree(*steps), RewardFlowSettings(alpha_traj=0.0, scale="none", prefix="duplicate"))
    # Group a: .09 twice and -.81, mean -.21.
    assert [row.step for row in doubled.steps] == [0, 1, 0, 2, 3]
    assert part(doubled, "action") == pytest.approx([0.3, 0.5, 0.3, -0.5, -0.6])


def test_edges_are_counted_by_action() -> None:
    graph = build(chains([walk("abc", SUCCESS), walk("abd", TRUNCATED)]))
    edge = next(edge for edge in graph.edges if edge.action == "to b")
    assert (edge.count, edge.gain) == (2, pytest.approx(0.09))
    assert {node.key: node.visits for node in graph.nodes} == {"a": 2, "b": 2, "c": 1, "d": 1}
