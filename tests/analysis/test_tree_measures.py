"""What trees show beyond a summary: by hand on small trees, and what must hold of any."""

from math import log
from statistics import pstdev
from typing import Any, NamedTuple, get_args

import credit_trees
import pytest
from agentcli.analysis.tree_measures import measure_steps, measure_trees
from agentcli.records.study import TreeMeasured
from agentcli.records.types import Move, Outcome, Step, Tree, Validity
from hypothesis import given
from hypothesis import strategies as st

NAMES = set(get_args(TreeMeasured))


class Act(NamedTuple):
    """One move: the state that it leaves, its action, and where it leads; a refused one leads nowhere."""

    state: str
    action: str
    after: str

    @property
    def validity(self) -> Validity:
        return Validity.VALID if self.state != self.after else Validity.INADMISSIBLE

    def fields(self) -> dict[str, Any]:
        return {"state": self.state, "action": self.action, "next_state": self.after, "validity": self.validity}


def tree(*walks: list[Act]) -> Tree:
    """Trajectories from the initial state."""
    trajectories = []
    for walk in walks:
        steps = [act.fields() for act in walk]
        steps[-1]["outcome"] = Outcome.FAILURE
        trajectories.append(steps)
    return credit_trees.chains(trajectories)


def test_by_hand() -> None:
    """Two walks: a-b-c, and a, a move that is refused in a, then a-b. Two of five moves are in new company."""
    first = [Act("a", "x", "b"), Act("b", "x", "c")]
    second = [Act("a", "y", "a"), Act("a", "x", "b")]
    found = measure_trees([tree(first, second)], NAMES)
    assert found["invalid_states"] == 1 / 4, "the move after the refusal"
    assert found["unique_states"] == 2 / 4, "a and b"
    assert found["unique_actions"] == 3 / 4, "x in a twice"
    assert found["diversity"] == (1 + 2) / 4
    assert (found["actions"], found["actions_std"]) == (1, 0)
    # RewardFlow's graph leaves out what was refused.
    # The b that an episode ended in is another node than the one on the way.
    assert (found["nodes"], found["edges"]) == (4, 3)


def test_copies_act_apart() -> None:
    """A response of three moves and one of one: mean 2, standard deviation 1."""
    refused = [move(1, "a", "x", "a"), move(2, "a", "x", "b"), move(3, "a", "y", "c")]
    steps = [acted(0, None, refused), acted(1, 0, [move(2, "b", "x", "c")]), acted(2, 1, [move(1, "a", "y", "c")])]
    steps[-1].outcome = Outcome.FAILURE
    found = measure_trees([credit_trees.tree(*steps)], NAMES - {"nodes", "edges"})
    assert found["actions"] == 5 / 3
    assert found["actions_std"] == pytest.approx(pstdev([3, 1, 1]))
    assert found["invalid_states"] == 1 / 5, "copy 1 answers its own refusal, copy 2 none"
    assert found["diversity"] == 2 / 5


def test_actions_by_step() -> None:
    """Three moves and then one; a second trajectory makes one move and ends (DPEPO Fig. 9)."""
    first = [acted(0, None, [move(copy, "a", "x", "b") for copy in (1, 2, 3)]), acted(1, 0, [move(1, "b", "x", "c")])]
    second = acted(2, None, [move(1, "a", "y", "c")])
    first[-1].outcome = second.outcome = Outcome.FAILURE
    assert measure_steps([credit_trees.tree(*first, second)], ["actions"]) == {"actions": [2, 1]}
    second.outcome = Outcome.ERRORED
    assert measure_steps([credit_trees.tree(*first, second)], ["actions"]) == {"actions": [3, 1]}


def test_what_could_not_be_read_makes_no_move() -> None:
    steps = [acted(0, None, []), acted(1, 0, [move(1, "a", "x", "b"), move(2, "a", "x", "b")])]
    steps[0].validity, steps[1].outcome = Validity.MALFORMED, Outcome.FAILURE
    assert measure_steps([credit_trees.tree(*steps)], ["actions", "call_entropy"]) == {
        "actions": [None, 2],
        "call_entropy": [None, None],
    }
    found = measure_trees([credit_trees.tree(*steps)], NAMES - {"nodes", "edges"})
    assert found["actions"] == 2
    assert "call_entropy" not in found


def test_the_tools_at_each_step() -> None:
    """Two tools at first and one at last; an answer is no tool (Rare-tool Fig. 5)."""
    walks = [
        [Act("a", first, "b"), Act("b", "look[x]", "c"), Act("c", "answer[A]", "d")] for first in ("ask[x]", "look[x]")
    ]
    trees = [tree(*walks)]
    assert measure_steps(trees, ["call_entropy"]) == {"call_entropy": [pytest.approx(log(2)), 0, None]}
    shares = (1 / 4, 3 / 4)
    whole_entropy = -sum(share * log(share) for share in shares)
    assert measure_trees(trees, {"call_entropy"}) == {"call_entropy": pytest.approx(whole_entropy)}


def test_entropy_is_of_sampled_tokens() -> None:
    """A mean over tokens, not over responses; greedy ones and those of another temperature have none (CARL eq. 6)."""
    sampled = [acted(number, None, []) for number in range(4)]
    for step, logprobs in zip(sampled, ([-1.0, -2.0, -3.0], [-6.0], [-9.0], [-9.0]), strict=True):
        step.logprobs, step.outcome = logprobs, Outcome.FAILURE
    sampled[2].temperature = sampled[2].logprob_temperature = 0.0
    sampled[3].temperature = 0.5
    assert measure_trees([credit_trees.tree(*sampled)], {"entropy"}) == {"entropy": 3.0}
    sampled[0].temperature = sampled[1].temperature = 0.0
    assert measure_trees([credit_trees.tree(*sampled)], {"entropy"}) == {}


def move(copy: int, state: str, action: str, after: str) -> Move:
    validity = Act(state, action, after).validity
    return credit_trees.move(copy, action, state, next_state=after, validity=validity)


def acted(number: int, parent: int | None, moves: list[Move]) -> Step:
    return credit_trees.step(number, parent, action=None, moves=moves)


WALKS = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy")), min_size=1, max_size=6), min_size=1, max_size=4
)


@given(WALKS)
def test_of_any_tree(walks: list[list[tuple[str, str]]]) -> None:
    """Shares are shares; another copy of the same trajectories brings no new state, so halves what is unique."""
    grown = [[Act(state, action, chr(ord(state) + (action == "x"))) for state, action in walk] for walk in walks]
    once, twice = (measure_trees([tree(*times)], NAMES) for times in (grown, [*grown, *grown]))
    shares = ("invalid_states", "unique_states", "unique_actions", "diversity")
    assert all(0 <= once[name] <= 1 for name in shares)
    assert once["unique_states"] <= once["unique_actions"]
    for name in ("unique_states", "unique_actions"):
        assert twice[name] == pytest.approx(once[name] / 2)
    for name in ("invalid_states", "diversity", "nodes", "edges"):
        assert twice[name] == pytest.approx(once[name])


def test_an_errored_trajectory_is_none() -> None:
    broken = tree([Act("a", "x", "b")], [Act("c", "y", "d")])
    broken.steps[1].outcome = Outcome.ERRORED
    assert measure_trees([broken], {"unique_states", "diversity"}) == {"unique_states": 1.0, "diversity": 1.0}


def test_nothing_is_measured_of_nothing() -> None:
    assert set(measure_trees([], NAMES).values()) <= {0.0}
