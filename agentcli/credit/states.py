"""Which text is a step's state for credit: the setting `credit.state`.

paper        f(s) of 002 B.1: what the agent sees, with what it cannot see but must know
             (Step.canonical). A world that records none has its exact key there.
exact        the true state (Step.state). Two that look alike but differ anywhere in the
             world are two.
observation  the text as the agent read it (002 Table 5, "w/o state normalization").

A step has two: the state it leaves and the one it leads to.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from agentcli.records.trees import acts_by_copy
from agentcli.records.types import Move, Step, Tree

StateForm = Literal["paper", "exact", "observation"]


class States(NamedTuple):
    """By position in a list of steps, the state that each leaves and the one that it
    leads to.
    """

    before: list[str]
    after: list[str]

    @property
    def texts(self) -> list[str]:
        """Every state that is mentioned, in order of the steps: before, after, before,
        ...
        """
        return [
            state
            for pair in zip(self.before, self.after, strict=True)
            for state in pair
        ]


def states_of(acts: Sequence[Step | Move], form: StateForm) -> States:
    """The states of steps, or of moves, in this form."""
    if form == "observation":
        return States(
            [act.observation for act in acts], [act.next_observation for act in acts]
        )
    if form == "exact":
        return States([act.state for act in acts], [act.next_state for act in acts])
    return States(
        [act.state if act.canonical is None else act.canonical for act in acts],
        [
            act.next_state if act.next_canonical is None else act.next_canonical
            for act in acts
        ],
    )


def standing_states(tree: Tree, form: StateForm) -> list[dict[int, str]]:
    """By step id and copy, the state in which the copy acts.

    A move that changed nothing (its exact state is the same after it) leaves the copy
    where it stood, whatever was read: the state after "Nothing happens." is the one
    before it.
    """
    states: list[dict[int, str]] = []
    unmoved: list[dict[int, str]] = []
    for step in tree.steps:
        known: dict[int, str] = (
            {} if step.parent is None else dict(unmoved[step.parent])
        )
        own: dict[int, str] = {}
        for copy, act in acts_by_copy(step):
            if act.action is None:
                # Nothing was done in any copy: all stand where they stood.
                continue
            own[copy] = (
                known.pop(copy) if copy in known else states_of([act], form).before[0]
            )
            if act.state == act.next_state:
                known[copy] = own[copy]
        states.append(own)
        unmoved.append(known)
    return states
