"""Counts how often an action or a transition is repeated along a path, for dpepo.

The counts are updated while a tree is walked depth first, and undone on the way back.
So any depth works and no path is copied.
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from agentcli.credit.equations import Equation
from agentcli.credit.survey import Survey
from agentcli.records.trees import acts_by_copy
from agentcli.records.types import Move, Step, Validity

NO_ACTION = 0.5
"""R_step of a step without a readable action (release; the paper does not say)."""
Act = tuple[int, str, str | None]
"""A move as (copy, action, before).

`before` completes the transition. In the paper's form it is the state before the move;
in the release it is the copy's previous action (None for its first).
"""


class Repeats(NamedTuple):
    """Counts of what a step repeats; the lists have one number per act."""

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
        self._actions: Counter[tuple[int, str]] = Counter()
        self._transitions: Counter[Act] = Counter()
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
        self._transitions.update(acts)
        for copy, action, _ in acts:
            self._actions[copy, action] += 1
            self._latest[copy].append(action)

    def leave(self, acts: Sequence[Act]) -> None:
        """Undoes `enter`."""
        self._transitions.subtract(acts)
        for copy, action, _ in acts:
            self._actions[copy, action] -= 1
            self._latest[copy].pop()


class Form(ABC):
    """A form of dpepo: what it counts in a step, and how it weights the counts."""

    @abstractmethod
    def before(
        self,
        copy: int,
        states: dict[int, str],
        history: PastActs,
    ) -> str | None:
        """What a copy's transition starts from; `states` has the state of each copy."""

    @abstractmethod
    def within(self, step: Step, acts: Sequence[Act]) -> int:
        """C_width."""

    @abstractmethod
    def width(
        self,
        act: Act,
        acts: Sequence[Act],
        history: PastActs,
    ) -> int:
        """M_width of one act of a step."""

    @abstractmethod
    def weigh(self, repeats: Repeats, settings: Any) -> float:
        """R_step of a step with at least one act."""

    @abstractmethod
    def equations(self, settings: Any) -> tuple[Equation, ...]:
        """The equations that lead from the counts to `step`."""

    def acts(
        self,
        step: Step,
        states: dict[int, str],
        history: PastActs,
    ) -> list[Act]:
        """The readable acts of a step."""
        acts: list[Act] = []
        for copy, act in _readable(step):
            before = self.before(copy, states, history)
            acts.append((copy, act.action or "", before))
        return acts

    def repeats(
        self,
        step: Step,
        acts: list[Act],
        history: PastActs,
    ) -> Repeats:
        """Counts what the acts of a step repeat; `history` ends before the step."""
        validities = [act.validity for _, act in _readable(step)]
        return Repeats(
            depth=[history.actions(copy, action) for copy, action, _ in acts],
            transitions=[history.transitions(*act) for act in acts],
            widths=[self.width(act, acts, history) for act in acts],
            within=self.within(step, acts),
            inadmissible=validities.count(Validity.INADMISSIBLE),
        )


def _readable(step: Step) -> list[tuple[int, Step | Move]]:
    """The moves of a step with a readable action; a single environment is copy 1."""
    readable = []
    for copy, act in acts_by_copy(step):
        if act.action is not None and act.validity is not Validity.MALFORMED:
            readable.append((copy, act))
    return readable


def step_weights(
    steps: Sequence[Step],
    survey: Survey,
    states: list[dict[int, str]],
    form: Form,
    settings: Any,
) -> list[float]:
    """R_step, or the release's W, by step id.

    It is NO_ACTION for a step without a readable action or without a live leaf.
    """
    history = PastActs()
    weights = [NO_ACTION] * len(steps)
    acts: list[list[Act]] = [[] for _ in steps]
    for visit in survey.visits():
        if visit < 0:
            history.leave(acts[~visit])
            continue
        step = steps[visit]
        acts[visit] = form.acts(step, states[visit], history)
        if acts[visit]:
            repeats = form.repeats(step, acts[visit], history)
            weights[visit] = form.weigh(repeats, settings)
        history.enter(acts[visit])
    return weights


def power_sum(base: float, counts: Sequence[int]) -> float:
    """Sum of base ** count."""
    total = 0.0
    for count in counts:
        total += base**count
    return total
