"""Where trees branch: siblings (responses sampled at the same state) and forks.

A fork that repeats its sibling's action pays twice for the same path. The papers count
forks; these functions count how many of them took a new action, and how deep they lie.
They read only a step's action, so they also work with a type that decodes less than
Step.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

from agentcli.records.grouping import grouped
from agentcli.records.types import StopReason

ROUNDING = 1e-9


class Acting(Protocol):
    """The part of a move that contains an action."""

    copy: int
    action: str


class Following(Protocol):
    """The part of a step that says which step it follows."""

    parent: int | None


class Answered(Following, Protocol):
    """The part of a step with its action, and whether a response was sampled."""

    response: str
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


class Branching:
    """Where trees branch, summed over trees."""

    def __init__(self) -> None:
        self.at_start = Siblings()
        self.of_forks = Siblings()
        self.forks: Counter[int] = Counter()
        """Number of forks by depth."""

    def add(self, steps: Sequence[Answered]) -> None:
        """Counts the steps of one tree."""
        at_start, of_forks = by_place(steps)
        self.at_start = self.at_start.plus(at_start)
        self.of_forks = self.of_forks.plus(of_forks)
        self.forks.update(fork_depths(steps))


def fork_depths(steps: Iterable[Following]) -> list[int]:
    """The depth of every fork of a tree: of each child beyond a state's first.

    A state's depth is the number of steps before it. So a fork after the first step has
    depth 1; roots, which start from the initial state, are not forks. `steps` are a
    whole tree's, in order.
    """
    reached: list[int] = []
    """The depth of the state that each step leads to."""
    forks = []
    continued: set[int] = set()
    for step in steps:
        depth = 0
        if step.parent is not None and step.parent < len(reached):
            depth = reached[step.parent]
            if step.parent in continued:
                forks.append(depth)
            continued.add(step.parent)
        reached.append(depth + 1)
    return forks


def shares_by_depth(forks: Iterable[int] | Counter[int]) -> list[float]:
    """The share of the forks at depth 1, 2, ..., from their depths or their counts."""
    counts = Counter(forks)
    deepest = max(counts, default=0)
    return [counts[depth] / counts.total() for depth in range(1, deepest + 1)]


def median_depth(shares: Sequence[float]) -> int | None:
    """The least depth that half of the forks do not exceed; None without forks.

    shares: at depth 1, 2, ..., as `shares_by_depth`.
    """
    for depth, share in enumerate(accumulate(shares), 1):
        # Shares are rounded: half of 6 forks may sum to a little less.
        if share > 0.5 - ROUNDING:
            return depth
    return None


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
    groups = grouped((step.parent, step) for step in steps)
    at_start = count_siblings(groups.pop(None, []))
    of_forks = Siblings()
    for group in groups.values():
        of_forks = of_forks.plus(count_siblings(group))
    return at_start, of_forks


def count_siblings(steps: Iterable[Answered]) -> Siblings:
    """Counts the steps sampled at one state.

    All malformed responses count as the same action.
    """
    actions = [named_action(step) for step in steps if was_sampled(step)]
    # A step alone has no siblings.
    if len(actions) < 2:
        return Siblings()
    return Siblings(len(actions), len(set(actions)))
