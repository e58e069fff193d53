"""Which text is a step's state for credit: the setting `credit.state`.

paper        f(s) of 002 B.1: what the agent sees, with what it cannot see but must know (Step.canonical). A world that records none
             has its exact key there.
exact        the true state (Step.state). Two that look alike but differ anywhere in the world are two.
observation  the text as the agent read it (002 Table 5, "w/o state normalization").

A step has two: the state it leaves and the one it leads to.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from agentcli.records.trees import acts_by_copy
from agentcli.records.types import Move, Step, Tree

StateForm = Literal["paper", "exact", "observation"]


class StatePair(NamedTuple):
    """The state before an action and the one after it."""

    before: str
    after: str


def state_pair(act: Step | Move, form: StateForm) -> StatePair:
    """The two states of a step, or of one copy's move, in this form."""
    if form == "observation":
        return StatePair(act.observation, act.next_observation)
    if form == "exact":
        return StatePair(act.state, act.next_state)
    before = act.state if act.canonical is None else act.canonical
    after = act.next_state if act.next_canonical is None else act.next_canonical
    return StatePair(before, after)


def state_pairs(tree: Tree, form: StateForm) -> list[StatePair]:
    """By step id."""
    return [state_pair(step, form) for step in tree.steps]


def standing_states(tree: Tree, form: StateForm) -> list[dict[int, str]]:
    """By step id and copy, the state in which the copy acts.

    A move that changed nothing (its exact state is the same after it) leaves the copy where it stood, whatever was read: the state
    after "Nothing happens." is the one before it.
    """
    states: list[dict[int, str]] = []
    unmoved: list[dict[int, str]] = []
    for step in tree.steps:
        known = {} if step.parent is None else dict(unmoved[step.parent])
        own: dict[int, str] = {}
        for copy, act in acts_by_copy(step):
            own[copy] = known.pop(copy, state_pair(act, form).before)
            if act.state == act.next_state:
                known[copy] = own[copy]
        states.append(own)
        unmoved.append(known)
    return states


def texts(pairs: Sequence[StatePair]) -> list[str]:
    """Every state that is mentioned, in order of the steps: before, after, before, ..."""
    return [state for pair in pairs for state in pair]
