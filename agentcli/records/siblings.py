"""Siblings (responses sampled at the same state) and how many actions differ.

A fork that repeats its sibling's action pays twice for the same path. The papers count
forks; these functions count how many of them took a new action. They read only a step's
action, so they also work with a type that decodes less than Step.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from agentcli.records.types import StopReason


class Acting(Protocol):
    """The part of a move that contains an action."""

    copy: int
    action: str


class Answered(Protocol):
    """The part of a step with its action, and whether a response was sampled."""

    response: str
    parent: int | None
    action: str | None
    stop: StopReason
    error: str | None

    @property
    def moves(self) -> Sequence[Acting]: ...


class Siblings(NamedTuple):
    """Counts of sampled siblings and of their distinct actions.

    Actions are counted separately in each state.
    """

    steps: int = 0
    distinct: int = 0

    def plus(self, other: "Siblings") -> "Siblings":
        """The sum of both counts."""
        return Siblings(
            self.steps + other.steps,
            self.distinct + other.distinct,
        )

    @property
    def share(self) -> float | None:
        """Share of distinct actions; None if no step has a sibling."""
        return self.distinct / self.steps if self.steps else None


def was_sampled(step: Answered) -> bool:
    """Whether the policy gave a response.

    False if it failed before it answered, or if it was not asked (overlong).
    """
    if step.stop is StopReason.OVERLONG:
        return False
    return step.error is None or bool(step.response)


def named_action(step: Answered) -> str:
    """The step's action; with several copies, the actions of its moves in copy order.

    "" if no action could be read.
    """
    if step.moves:
        return joined({move.copy: move.action for move in step.moves})
    return step.action or ""


def joined(texts: Mapping[int, str]) -> str:
    """Joins the texts of several copies into one, in copy order."""
    return "\n".join(f"env_{copy}: {texts[copy]}" for copy in sorted(texts))


def by_place(steps: Iterable[Answered]) -> tuple[Siblings, Siblings]:
    """Counts the siblings of a whole tree: at the initial state, and at forks."""
    groups: dict[int | None, list[Answered]] = defaultdict(list)
    for step in steps:
        groups[step.parent].append(step)
    at_start = count_siblings(groups.pop(None, []))
    of_forks = Siblings()
    for group in groups.values():
        of_forks = of_forks.plus(count_siblings(group))
    return at_start, of_forks


def count_siblings(steps: Iterable[Answered]) -> Siblings:
    """Counts the steps sampled at one state.

    All malformed responses count as the same action.
    """
    actions = []
    for step in steps:
        if was_sampled(step):
            actions.append(named_action(step))
    # A step alone has no siblings.
    if len(actions) < 2:
        return Siblings()
    return Siblings(len(actions), len(set(actions)))
