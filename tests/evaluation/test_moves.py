"""What a response in several copies counts: one step of as many moves; with one copy the very counts of one environment."""

from pathlib import Path

import msgspec
import pytest
from agentcli.credit.dpepo import DpepoSettings, assign
from agentcli.evaluation.episodes import episodes, repetitions
from agentcli.evaluation.summary import summarise
from agentcli.prompts.parallel import write_parallel
from agentcli.prompts.tagged import write_tagged
from agentcli.records.files import RecordWriter
from agentcli.records.trees import paths
from agentcli.records.types import Ledger, Move, Outcome, Step, Task, Tree, Validity
from agentcli.reports.show.trees import tree_overviews
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import ListedPolicy
from word_trees import grow_word

TASK = Task(id="t", world="toy", split="train", kind="walk")
Act = tuple[int, str, str, Validity]
"""Copy, state, action, validity."""
VALID, INADMISSIBLE, MALFORMED = Validity.VALID, Validity.INADMISSIBLE, Validity.MALFORMED


def step(number: int, *acts: Act, parent: int | None = -1) -> Step:
    """A response with these moves; none: a malformed one. Without `parent` it follows the step before."""
    seen = {"observation": "o", "next_state": "s", "next_observation": "o"}
    moves = [Move(copy=copy, state=state, action=action, validity=how, **seen) for copy, state, action, how in acts]
    before = (number - 1 if number else None) if parent == -1 else parent
    validity = VALID if moves else MALFORMED
    return Step(
        id=number, parent=before, prompt="p", response="r", state="joined", validity=validity, moves=moves, **seen
    )


def tree(steps: list[Step]) -> Tree:
    """Its leaves succeed."""
    parents = {one.parent for one in steps}
    for one in steps:
        one.outcome = None if one.id in parents else Outcome.SUCCESS
    return Tree(task=TASK, instruction="", method="dpepo", seed=0, steps=steps, ledger=Ledger())


def alone(one: Step) -> Step:
    """A step in one environment in the place of one in one copy."""
    if not one.moves:
        return one
    (move,) = one.moves
    return msgspec.structs.replace(one, moves=[], state=move.state, action=move.action, validity=move.validity)


def test_by_hand() -> None:
    """Copy 1 stays in a and does x three times; copy 2 does y in a, x in a, and y again; both are refused once each."""
    grown = tree(
        [
            step(0, (1, "a", "x", VALID), (2, "a", "y", VALID)),
            step(1, (1, "a", "x", INADMISSIBLE), (2, "a", "x", VALID)),
            step(2),
            step(3, (1, "a", "x", VALID), (2, "a", "y", INADMISSIBLE), (3, "a", "x", VALID)),
            step(4, (1, "b", "x", VALID)),
        ]
    )
    (episode,) = episodes(grown)
    assert (episode.steps, episode.moves) == (5, 2 + 2 + 1 + 3 + 1)
    assert (episode.repetitive_steps, episode.inadmissible_steps, episode.malformed_steps) == (3, 2, 1)
    summary = summarise([episode])
    assert (summary.steps, summary.moves) == (5, 9)
    assert (summary.repetitive, summary.inadmissible) == (pytest.approx(3 / 9), pytest.approx(2 / 9))
    assert summary.malformed == pytest.approx(1 / 5), "a response is malformed, not a move"


def test_the_score_is_that_of_the_best_copy(tmp_path: Path) -> None:
    """Two copies that each earn a point have not earned two. `show` says what an evaluation says."""
    grown = tree([step(0, (1, "a", "x", VALID), (2, "a", "y", VALID)), step(1, (2, "b", "x", VALID)), step(2)])
    for one, points in zip(grown.steps, ((8.0, 1.0), (30.0,)), strict=False):
        for move, reward in zip(one.moves, points, strict=True):
            move.reward = reward
        one.reward = max(points)
    (episode,) = episodes(grown)
    assert episode.score == 31.0
    with RecordWriter(tmp_path / "trees.jsonl") as writer:
        writer.write(grown)
    (row,) = tree_overviews(tmp_path / "trees.jsonl")
    assert row.score == 31.0


acts = st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y"]), st.sampled_from([VALID, VALID, INADMISSIBLE]))
walks = st.lists(st.one_of(st.none(), acts), min_size=1, max_size=8)


@given(walk=walks)
def test_one_copy_counts_as_one_environment_does(walk: list[tuple[str, str, Validity] | None]) -> None:
    """None is a response without a readable action."""
    copied = tree([step(number, *([(1, *act)] if act else [])) for number, act in enumerate(walk)])
    single = tree([alone(one) for one in copied.steps])
    (ours,), (theirs,) = episodes(copied), episodes(single)
    assert ours == theirs
    assert ours.moves == ours.steps == len(walk)
    assert summarise([ours]) == summarise([theirs])


several = st.dictionaries(
    st.integers(1, 3),
    st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y"]), st.sampled_from(Validity)),
    max_size=3,
)


@given(responses=st.lists(several, min_size=1, max_size=7), data=st.data())
def test_a_move_is_repeated_where_m_depth_is_not_0(
    responses: list[dict[int, tuple[str, str, Validity]]], data: st.DataObject
) -> None:
    """With all other factors at 1, and gamma next to 0, R_step = (3 + share of the moves that are not repeated) / 2. A step in one
    environment is one in copy 1."""
    steps = []
    for number, made in enumerate(responses):
        parent = data.draw(st.sampled_from([None, *range(number)]))
        steps.append(step(number, *((copy, *act) for copy, act in made.items()), parent=parent))
        if list(made) == [1] and data.draw(st.booleans()):
            steps[-1] = alone(steps[-1])
    grown = tree(steps)
    credit = assign(grown, DpepoSettings(alpha=1.0, omega=1.0, beta=1.0, gamma=1e-12))
    new = {entry.step: entry.parts["step"] * 2 - 3 for entry in credit.steps}
    there = [sum(how is not MALFORMED for _, _, how in made.values()) for made in responses]
    for path, counted in zip(paths(grown), episodes(grown), strict=True):
        expected = sum(there[one.id] * (1 - new[one.id]) for one in path)
        assert counted.repetitive_steps == repetitions(path) == pytest.approx(expected, abs=1e-6)


actions = st.lists(st.sampled_from(["a", "b", "noop", "sing", ""]), min_size=6, max_size=6)


@settings(max_examples=40, deadline=None)
@given(said=actions)
def test_dpepo_of_one_copy_has_the_shares_of_chain(said: list[str]) -> None:
    """The same actions in the same world, "" being unreadable."""
    parallel = ListedPolicy([write_parallel("go", {1: word}) if word else "?" for word in said])
    single = ListedPolicy([write_tagged("think", "go", word) if word else "?" for word in said])
    ours = grow_word("dpepo", parallel, max_steps=6, leaves=1, copies=1)
    theirs = grow_word("chain", single, max_steps=6, leaves=1)
    mine, other = (
        msgspec.structs.replace(summarise(episodes(grown)), tokens=0.0, kinds={}) for grown in (ours, theirs)
    )
    assert mine == other
    assert mine.moves == ours.ledger.steps == theirs.ledger.steps == 6


def test_an_action_tried_again_in_vain_is_repeated_although_the_text_before_it_changed() -> None:
    """SPARK Table 6: the state is what is held and what is where; the first answer "Nothing happens" does not make a new one."""
    same = {"state": "here", "next_state": "here", "action": "jump", "validity": INADMISSIBLE}
    first = msgspec.structs.replace(step(0), **same, observation="a room")
    again = msgspec.structs.replace(step(1), **same, observation="Nothing happens.")
    assert repetitions([first, again]) == 1
