"""What a state is for credit: f(s), the true state, or the text; and where a copy stands after a move that changed nothing."""

import itertools
from typing import Any

import pytest
from agentcli.credit import dpepo, gigpo, rewardflow
from agentcli.credit.dpepo import DpepoSettings
from agentcli.credit.gigpo import GigpoSettings
from agentcli.credit.rewardflow import RewardFlowSettings, state_graph
from agentcli.credit.states import StateForm, States, standing_states, states_of
from agentcli.credit.survey import survey_of
from agentcli.records.types import Outcome, Tree, Validity
from credit_trees import FAILURE, SUCCESS, advantages, chains, move, step, tree


def walked(end: Outcome, *moments: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Step fields of a trajectory through (exact, canonical, text) moments."""
    fields: list[dict[str, Any]] = [
        {
            "state": before[0],
            "next_state": after[0],
            "canonical": before[1],
            "next_canonical": after[1],
            "observation": before[2],
            "next_observation": after[2],
            "action": f"to {after[1]}",
        }
        for before, after in itertools.pairwise(moments)
    ]
    fields[-1]["outcome"] = end
    return fields


def meeting() -> Tree:
    """Two trajectories that look alike in the middle: true states m1 and m2, one canonical m, two texts. One succeeds."""
    start = ("s", "S", "start")
    return chains(
        [
            walked(SUCCESS, start, ("m1", "M", "first text"), ("g", "G", "goal")),
            walked(FAILURE, start, ("m2", "M", "second text"), ("b", "B", "bad")),
        ]
    )


def test_the_three_forms() -> None:
    one = step(0, None, state="e", next_state="e2", canonical="c", next_canonical="c2", observation="o")
    assert states_of([one], "paper") == States(["c"], ["c2"])
    assert states_of([one], "exact") == States(["e"], ["e2"])
    assert states_of([one], "observation") == States(["o"], [""])


def test_a_world_without_canonical_states_has_its_exact_ones() -> None:
    assert states_of([step(0, None, state="e", next_state="e2")], "paper") == States(["e"], ["e2"])


@pytest.mark.parametrize(("form", "nodes", "edges"), [("paper", 4, 3), ("exact", 5, 4), ("observation", 5, 4)])
def test_states_that_look_alike_are_one_node_in_the_papers_form(form: StateForm, nodes: int, edges: int) -> None:
    # paper: S, M, G, B with S-M (twice), M-G, M-B. exact: m1 and m2 apart, S-m1, m1-G, S-m2, m2-B.
    settings = RewardFlowSettings(state=form)
    grown = meeting()
    graph = state_graph(grown, survey_of(grown, settings), settings)
    assert (len(graph.nodes), len(graph.counts)) == (nodes, edges)


def test_rewardflow_compares_what_leaves_one_canonical_state() -> None:
    # R(S) = .81, R(M) = .9, R(G) = 1, R(B) = 0: from M the gains are .1 and -.9, from S both .09.
    plain = {"scale": "none", "invalid_penalty": 0.0, "alpha_traj": 0.0}
    paper = rewardflow.assign(meeting(), RewardFlowSettings(**plain))
    assert advantages(paper) == pytest.approx([0.0, 0.5, 0.0, -0.5], abs=1e-12)
    # Apart, m2 leads nowhere: only S is left by two, its gains are .09 and -.81.
    exact = rewardflow.assign(meeting(), RewardFlowSettings(state="exact", **plain))
    assert advantages(exact) == pytest.approx([0.45, 0.0, -0.45, 0.0], abs=1e-12)


def test_gigpo_groups_by_canonical_state() -> None:
    def step_terms(form: StateForm) -> list[float]:
        credit = gigpo.assign(meeting(), GigpoSettings(state=form, normalise="mean", invalid_penalty=0.0))
        return [row.parts["step"] for row in credit.steps]

    # Discounted returns: .95 and 1 of the success, 0 of the failure.
    assert step_terms("paper") == pytest.approx([0.475, 0.5, -0.475, -0.5], abs=1e-12)
    assert step_terms("exact") == pytest.approx([0.475, 0.0, -0.475, 0.0], abs=1e-12)


def test_a_move_that_changed_nothing_leaves_its_copy_where_it_stood() -> None:
    nothing = {"next_state": "e", "next_canonical": "nothing happens", "validity": Validity.INADMISSIBLE}
    grown = chains(
        [
            [
                {"state": "e", "canonical": "room", "action": "jump", **nothing},
                {"state": "e", "canonical": "nothing happens", "action": "jump", **nothing},
                {"state": "e", "next_state": "f", "canonical": "nothing happens", "action": "go", "outcome": FAILURE},
            ]
        ]
    )
    assert standing_states(grown, "paper") == [{1: "room"}, {1: "room"}, {1: "room"}]
    assert states_of(grown.steps, "paper").before == ["room", "nothing happens", "nothing happens"]


def test_copies_stand_each_for_itself_and_along_their_own_path() -> None:
    stays = {"canonical": "A", "next_state": "a", "next_canonical": "noise"}
    grown = tree(
        step(0, None, moves=[move(1, "x", "a", **stays), move(2, "x", "a", canonical="A", next_state="b")]),
        step(1, 0, moves=[move(1, "x", "a", canonical="noise")], outcome=FAILURE),
        step(2, 0, moves=[move(2, "y", "b", canonical="B")]),
        step(3, 2, moves=[move(1, "x", "a", canonical="noise")], outcome=FAILURE),
    )
    assert standing_states(grown, "paper") == [{1: "A", 2: "A"}, {1: "A"}, {2: "B"}, {1: "A"}]


def step_rewards(grown: Tree, settings: DpepoSettings) -> list[float]:
    """R_step of every step."""
    return [row.parts["step"] for row in dpepo.assign(grown, settings).steps if row.advantage is not None]


def test_dpepo_sees_the_first_repeat_after_an_answer_that_nothing_happened() -> None:
    """M_depth of the second x is 1 although what was read before it is another text: R_step falls by its gamma."""
    refused = {"state": "e", "next_state": "e", "validity": Validity.INADMISSIBLE, "action": "x"}
    grown = chains(
        [[{**refused, "canonical": "room"}, {**refused, "canonical": "nothing happens", "outcome": FAILURE}]]
    )
    settings = DpepoSettings(alpha=1.0, omega=1.0, gamma=0.5, beta=1.0)
    assert step_rewards(grown, settings) == pytest.approx([2.0, 1.75])


def test_dpepo_compares_transitions_across_copies_by_what_they_look_like() -> None:
    """Copies 1 and 2 do the same from true states that differ in something neither sees: M_width is 1 for each."""
    both = [move(1, "x", "e1", canonical="room"), move(2, "x", "e2", canonical="room")]
    grown = tree(step(0, None, moves=both, outcome=FAILURE))
    plain = {"alpha": 1.0, "omega": 1.0, "gamma": 1.0, "beta": 0.5}
    assert step_rewards(grown, DpepoSettings(**plain)) == pytest.approx([1.75])
    assert step_rewards(grown, DpepoSettings(state="exact", **plain)) == pytest.approx([2.0])


def test_after_an_unreadable_response_every_copy_stands_where_it_stood() -> None:
    """A response without an action moves no copy: both copies then do the same from the same state, M_width 1 for each."""
    both = [move(1, "x", "e1", canonical="room"), move(2, "x", "e2", canonical="room")]
    unreadable = {"action": None, "validity": Validity.MALFORMED, "state": "joined", "next_state": "joined"}
    grown = tree(step(0, None, **unreadable), step(1, 0, moves=both, outcome=FAILURE))
    assert standing_states(grown, "paper") == [{}, {1: "room", 2: "room"}]
    plain = DpepoSettings(alpha=1.0, omega=1.0, gamma=1.0, beta=0.5)
    assert step_rewards(grown, plain)[1] == pytest.approx(1.75)


def test_the_graph_counts_all_successes_as_one_node() -> None:
    """RewardFlow Fig. 12: two last moves lead to one star. The nodes of the graph itself stay apart, for the mean distance."""
    start = ("s", "S", "start")
    grown = chains(
        [
            walked(SUCCESS, start, ("g1", "first goal", "")),
            walked(SUCCESS, start, ("g2", "second goal", "")),
            walked(FAILURE, start, ("b", "bad", "")),
        ]
    )
    settings = RewardFlowSettings()
    graph = state_graph(grown, survey_of(grown, settings), settings)
    assert len(graph.nodes) == 4
    assert (graph.size.nodes, graph.size.edges) == (3, 3)
