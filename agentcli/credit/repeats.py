"""Counts how often an action or a transition is repeated along a path, for dpepo.

The counts are updated while a tree is walked depth first, and undone on the way back.
So any depth works and no path is copied.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from agentcli.records.trees import acts_by_copy
from agentcli.records.types import Move, Step, Validity

Act = tuple[int, str, str | None]
"""A move as (copy, action, before).

`before` completes the transition. In the paper's form it is the state before the move;
in the release it is the copy's previous action (None for its first).
"""


class Repeats(NamedTuple):
    """Counts of what a step repeats; the lists have one number per act."""

    copies: list[int]
    """The copy that acts."""
    depth: list[int]
    """C_depth: earlier identical actions in the same copy."""
    transitions: list[int]
    """M_depth: earlier identical transitions in the same copy."""
    widths: list[int]
    """M_width: the same transition in other copies, as counted by the form."""
    within: int
    """C_width: actions of this step that repeat another action of this step."""
    inadmissible: int
    """The number of inadmissible moves."""


class PastActs:
    """Counts of what every copy did along the current path."""

    def __init__(self) -> None:
        # C_depth.
        self._actions: defaultdict[tuple[int, str], int] = defaultdict(int)
        # M_depth, and of other copies M_width.
        self._transitions: defaultdict[Act, int] = defaultdict(int)
        self._latest: defaultdict[int, list[str]] = defaultdict(list)

    def latest(self, copy: int) -> str | None:
        """The copy's latest action."""
        actions = self._latest[copy]
        return actions[-1] if actions else None

    def actions(self, copy: int, action: str) -> int:
        """How often the copy has taken this action."""
        return self._actions[copy, action]

    def transitions(
        self,
        copy: int,
        action: str,
        before: str | None,
    ) -> int:
        """How often it did so in the same state (release: after the same action)."""
        return 0 if before is None else self._transitions[copy, action, before]

    def enter(self, acts: Sequence[Act]) -> None:
        """Counts the acts of a step."""
        for act in acts:
            copy, action, _ = act
            self._transitions[act] += 1
            self._actions[copy, action] += 1
            self._latest[copy].append(action)

    def leave(self, acts: Sequence[Act]) -> None:
        """Undoes `enter`."""
        for act in acts:
            copy, action, _ = act
            self._transitions[act] -= 1
            self._actions[copy, action] -= 1
            self._latest[copy].pop()


def readable(step: Step) -> list[tuple[int, Step | Move]]:
    """The moves of a step with a readable action; a single environment is copy 1."""
    readable = []
    for copy, act in acts_by_copy(step):
        if act.action is not None and act.validity is not Validity.MALFORMED:
            readable.append((copy, act))
    return readable


def power_sum(base: float, counts: Sequence[int]) -> float:
    """Sum of base ** count."""
    total = 0.0
    for count in counts:
        total += base**count
    return total
