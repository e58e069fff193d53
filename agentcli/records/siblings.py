"""Siblings, responses sampled at the same state, and their different actions.

A fork that repeats its sibling's action buys a second walk of the same way. The papers
count forks; these functions count what was new in them. They read only a step's action,
so that they also serve a reader who decodes less of a step than Step.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from agentcli.records.types import StopReason


class Acting(Protocol):
    """The part of a move that names an action."""

    copy: int
    action: str


class Answered(Protocol):
    """The part of a step that says whether a response was sampled, and its action."""

    response: str
    parent: int | None
    action: str | None
    stop: StopReason
    error: str | None

    @property
    def moves(self) -> Sequence[Acting]: ...


class Siblings(NamedTuple):
    """Counts of steps that share the state they leave, and of their different actions.

    Actions are counted in each state by itself.
    """

    steps: int = 0
    distinct: int = 0

    def plus(self, other: "Siblings") -> "Siblings":
        """Both together."""
        return Siblings(
            self.steps + other.steps,
            self.distinct + other.distinct,
        )

    @property
    def share(self) -> float | None:
        """Share of distinct actions; None where no step has a sibling."""
        return self.distinct / self.steps if self.steps else None


def was_sampled(step: Answered) -> bool:
    """Whether the policy gave a response.

    It did not where it broke before, nor where it was not asked (overlong).
    """
    if step.stop is StopReason.OVERLONG:
        return False
    return step.error is None or bool(step.response)


def named_action(step: Answered) -> str:
    """The step's action, or those of its moves in the order of the copies.

    "" where no action could be read.
    """
    if step.moves:
        return joined({move.copy: move.action for move in step.moves})
    return step.action or ""


def joined(texts: Mapping[int, str]) -> str:
    """One text out of those of several copies, in their order."""
    return "\n".join(f"env_{copy}: {texts[copy]}" for copy in sorted(texts))


def by_place(steps: Iterable[Answered]) -> tuple[Siblings, Siblings]:
    """Counts all steps of a tree: the siblings at the initial state, and at forks."""
    groups: dict[int | None, list[Answered]] = defaultdict(list)
    for step in steps:
        groups[step.parent].append(step)
    at_start = count_siblings(groups.pop(None, []))
    of_forks = Siblings()
    for group in groups.values():
        of_forks = of_forks.plus(count_siblings(group))
    return at_start, of_forks


def count_siblings(steps: Iterable[Answered]) -> Siblings:
    """Counts the steps that were sampled at one state.

    All malformed responses are one action.
    """
    actions = []
    for step in steps:
        if was_sampled(step):
            actions.append(named_action(step))
    # A step alone has no sibling.
    if len(actions) < 2:
        return Siblings()
    return Siblings(len(actions), len(set(actions)))
