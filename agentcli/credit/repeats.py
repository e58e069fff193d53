"""What the copies of an environment did before along a path, for dpepo: how often an
action or a transition is repeated.

The counts are kept while a tree is walked depth first, and undone on the way back: any
depth, and no path is copied.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentcli.credit.equations import Equation
from agentcli.credit.group import Survey, visits
from agentcli.records.types import Step

NO_ACTION = 0.5
"""R_step of a step without a readable action (release; the paper does not say)."""
Act = tuple[int, str, str | None]
"""A move in short: copy, action, and the other half of its transition: the state
before, in the release the copy's action before (None for its first).
"""


class Actions(NamedTuple):
    """What a step did in the copies that are there."""

    acts: list[Act]
    repeated: int
    """C_width: actions of this step that repeat another of it."""
    refused: int
    """Inadmissible moves."""


class PastActs:
    """What was done in every copy along the path from the first step; undone on the way
    back.
    """

    def __init__(self) -> None:
        self._actions: dict[tuple[int, str], int] = {}
        self._transitions: dict[tuple[int, str, str], int] = {}
        self._last: dict[int, list[str]] = {}

    def last(self, copy: int) -> str | None:
        """The copy's latest action."""
        actions = self._last.get(copy)
        return actions[-1] if actions else None

    def actions(self, copy: int, action: str) -> int:
        """How often the copy has done this."""
        return self._actions.get((copy, action), 0)

    def transitions(self, copy: int, action: str, before: str | None) -> int:
        """How often it did so from the same state (release: after the same action)."""
        return 0 if before is None else self._transitions.get((copy, before, action), 0)

    def enter(self, acts: Sequence[Act]) -> None:
        """Count the acts of a step."""
        for copy, action, before in acts:
            self._actions[copy, action] = self._actions.get((copy, action), 0) + 1
            self._last.setdefault(copy, []).append(action)
            if before is not None:
                transition = (copy, before, action)
                self._transitions[transition] = self._transitions.get(transition, 0) + 1

    def leave(self, acts: Sequence[Act]) -> None:
        """Undo `enter`."""
        for copy, action, before in acts:
            self._actions[copy, action] -= 1
            self._last[copy].pop()
            if before is not None:
                self._transitions[copy, before, action] -= 1


@dataclass(frozen=True)
class Form:
    """How one form of the method reads a step, counts M_width, and weighs what it has
    counted.
    """

    read: Callable[[Step, dict[int, str], PastActs], Actions]
    """A step, the state in which each copy stands, and what was done before."""
    width: Callable[[Act, Sequence[Act], PastActs], int]
    """M_width of one act of a step."""
    weigh: Callable[[Actions, PastActs, Any], float]
    """R_step, from the counts before the step and the settings."""
    equations: Callable[[Any], tuple[Equation, ...]]
    """From the counts to `step`, by the settings."""


def weights(
    steps: Sequence[Step],
    survey: Survey,
    states: list[dict[int, str]],
    form: Form,
    settings: Any,
) -> list[float]:
    """R_step of every step that counts."""
    history = PastActs()
    rewards = [NO_ACTION] * len(steps)
    done: list[list[Act]] = [[] for _ in steps]
    for visit in visits(survey):
        if visit < 0:
            history.leave(done[~visit])
            continue
        actions = form.read(steps[visit], states[visit], history)
        if actions.acts:
            rewards[visit] = form.weigh(actions, history, settings)
        done[visit] = actions.acts
        history.enter(actions.acts)
    return rewards


def factors(
    acts: Sequence[Act],
    width: Callable[[Act, Sequence[Act], PastActs], int],
    history: PastActs,
    settings: Any,
) -> tuple[float, float, float]:
    """Sums over the copies of alpha ** C_depth, gamma ** M_depth and beta ** M_width."""
    depth = transitions = widths = 0.0
    for act in acts:
        copy, action, before = act
        depth += settings.alpha ** history.actions(copy, action)
        transitions += settings.gamma ** history.transitions(copy, action, before)
        widths += settings.beta ** width(act, acts, history)
    return depth, transitions, widths
