"""Which text identifies a step's state for credit: the setting `credit.state`.

paper        f(s) of RewardFlow B.1: what the agent sees, plus what it cannot see but must know
             (Step.canonical). Where a world records none, the exact key is used.
exact        the true state (Step.state). States that look alike but differ anywhere in
             the world are different.
observation  the text as the agent read it (RewardFlow Table 5, "w/o state normalization").

A step has two states: the one before it and the one after it.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal, NamedTuple

from agentcli.records.trees import acts_by_copy
from agentcli.records.types import Move, Step, Tree

StateForm = Literal["paper", "exact", "observation"]


class States(NamedTuple):
    """The states before and after each step of a list."""

    before: list[str]
    after: list[str]

    @property
    def texts(self) -> Iterator[str]:
        """All states, step by step: before, after, before, ..."""
        return chain.from_iterable(zip(self.before, self.after, strict=True))


def states_of(acts: Sequence[Step | Move], form: StateForm) -> States:
    """The states of steps or moves, in the given form."""
    if form == "observation":
        before = [act.observation for act in acts]
        after = [act.next_observation for act in acts]
        return States(before, after)
    before = [act.state for act in acts]
    after = [act.next_state for act in acts]
    if form == "paper":
        # Where a world records no canonical state, the exact key is used.
        for place, act in enumerate(acts):
            if act.canonical is not None:
                before[place] = act.canonical
            if act.next_canonical is not None:
                after[place] = act.next_canonical
    return States(before, after)


def standing_states(tree: Tree, form: StateForm) -> list[dict[int, str]]:
    """The state in which each copy acts, by step id and copy.

    A move that changed nothing (same exact state before and after) leaves the copy in
    its state, whatever the observation says: the state after "Nothing happens." is the
    state before it.
    """
    states: list[dict[int, str]] = []
    # By step id: the copies whose last move changed nothing, with their state.
    unmoved_after: list[dict[int, str]] = []
    for step in tree.steps:
        standing: dict[int, str] = {}
        unmoved: dict[int, str] = {}
        if step.parent is not None:
            unmoved.update(unmoved_after[step.parent])
        for copy, act in acts_by_copy(step):
            if act.action is None:
                # Nothing was done in any copy, so all keep their states.
                continue
            state = unmoved.pop(copy, None)
            if state is None:
                state = act.observation if form == "observation" else act.state
                if form == "paper" and act.canonical is not None:
                    state = act.canonical
            standing[copy] = state
            if act.state == act.next_state:
                unmoved[copy] = state
        states.append(standing)
        unmoved_after.append(unmoved)
    return states
