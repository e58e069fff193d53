"""A tree as numbers: every credit method starts from these.

Lists are indexed by step id. Some also have an element for the root, the initial state
of the tree. It is the last element, so the parent id -1 of a first step finds it. A
parent comes before its children, so one pass over the ids is enough: no recursion, at
any depth. Sums are exact or use math.fsum, so the order of siblings does not change
them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from msgspec import UNSET

from agentcli.credit.equations import Evidence
from agentcli.credit.group import Entry
from agentcli.credit.switches import LARGEST, PenaltySwitches, Switches
from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.types import (
    Credit,
    GraphSize,
    Outcome,
    StepCredit,
    StopReason,
    Tree,
    Validity,
)

ROOT = -1
"""The parent of every first step."""
ERRORED = "errored"
"""Marks a step that has no advantage because all leaves below it errored."""

Explained = dict[int, Evidence]
"""The evidence of rows, by row number."""
# Beside the call, so that `assign` stays a function of tree and settings alone.
_explained: ContextVar[Explained | None] = ContextVar("explained", default=None)

AdvantageParts = tuple[float, dict[str, float]]
"""The advantage of a row, and the parts that it was computed from."""


@dataclass(slots=True)
class Survey:
    """A tree as numbers; `live`, `won` and `rewards` also have the root, at the end."""

    tree: Tree
    parents: list[int]
    """ROOT for a first step."""
    ends: list[int]
    """Ids of all leaves, errored ones included."""
    live: list[int]
    """The number of leaves below the step, itself included, that did not error."""
    won: list[int]
    """The number of those leaves that succeeded."""
    rewards: list[float]
    """Mean outcome reward over the live leaves below (0 where there are none).

    All methods take their outcome rewards from here.
    """
    invalid: list[bool]
    """Whether the step is malformed or inadmissible."""
    penalties: list[float]
    """The penalty inside the step's score, 0 or invalid_penalty (`penalised`); all 0
    where `charges` are used instead.
    """
    masked: list[str | None]
    """Why the step cannot have an advantage: it leads only to errored leaves, or must
    not be imitated (Step.mask).
    """
    asked: list[int]
    """1; 0 for a step whose prompt was too long to be asked. Such a step ends its
    trajectory and is not a step of the policy (rollout.overlong).
    """
    charges: list[float] | None = None
    """The step's penalty outside the normalisation (`penalty: outside`)."""
    _children: list[list[int]] | None = None

    @property
    def penalised(self) -> list[bool]:
        """Whether the step is invalid and the policy's own.

        The penalty of another (Step.mask) would be in a baseline and in no advantage.
        """
        return [
            wrong and step.mask is None
            for wrong, step in zip(self.invalid, self.tree.steps, strict=True)
        ]

    def children(self) -> list[list[int]]:
        """The children with a live leaf, by step; the root's are the last element."""
        if self._children is None:
            self._children = [[] for _ in self.live]
            for step, parent in enumerate(self.parents):
                if self.live[step]:
                    self._children[parent].append(step)
        return self._children

    def path(self, end: int) -> list[int]:
        """Ids from the first step to `end`."""
        walk = [end]
        while (parent := self.parents[walk[-1]]) != ROOT:
            walk.append(parent)
        return walk[::-1]

    def live_ends(self) -> list[int]:
        """Ids of the leaves that did not error."""
        return [end for end in self.ends if self.live[end]]

    def visits(self) -> Iterator[int]:
        """Walks depth first over the steps with a live leaf, siblings in order of ids.

        Yields n when step n is entered, and ~n (negative) when everything below it has
        been visited, so that a history of the path can be undone.
        """
        children = self.children()
        ahead = children[ROOT][::-1]
        while ahead:
            step = ahead.pop()
            yield step
            if step >= 0:
                ahead.append(~step)
                ahead.extend(reversed(children[step]))

    def rows(
        self, prefix: str | None, values: Sequence[float] | None = None
    ) -> Iterator[tuple[int, float]]:
        """The training rows as (step id, outcome reward), masked ones included.

        merge: every step once, in order of ids, with the mean over its leaves.
        duplicate: the rows of `leaf_rows`. `values`, by step id, replace the rewards.
        """
        values = self.rewards if values is None else values
        if prefix == "merge":
            # The rewards have one more element, the root's.
            yield from zip(range(len(self.parents)), values, strict=False)
            return
        for end, steps in self.leaf_rows():
            for step in steps:
                yield step, values[end]

    def leaf_rows(self) -> Iterator[tuple[int, list[int]]]:
        """Every leaf with the steps that have a row for it, first step first."""
        lost: set[int] = set()
        for end in self.ends:
            steps = self.path(end)
            if not self.live[end]:
                # A step without a live leaf has one row only, with its first leaf.
                steps = [
                    step for step in steps if not self.live[step] and step not in lost
                ]
                lost.update(steps)
            yield end, steps

    def given(self, name: str, needed: str) -> list[float]:
        """A number of every step; 0 for a masked step without one."""
        numbers = []
        for step in self.tree.steps:
            number = getattr(step, name)
            if number in (None, UNSET) and self.masked[step.id] is None:
                raise DataError(
                    f"task {shown(self.tree.task.id)}: steps[{step.id}].{name}: there "
                    f"is none; {needed}, or take --method grpo"
                )
            numbers.append(number or 0.0)
        return numbers

    def entries(self, scores: Sequence[float], prefix: str | None) -> list[Entry]:
        """Every step's score less its penalty, as a member of a group.

        A merged step counts once in its group, a duplicated one once per leaf.
        """
        entries = []
        for step, score in enumerate(scores):
            weight = float(self.live[step]) if prefix == "duplicate" else 1.0
            if self.masked[step] is not None or not self.asked[step]:
                weight = 0.0
            entries.append((step, score - self.penalties[step], weight))
        return entries

    def credit(
        self,
        method: str,
        rows: Iterable[tuple[Any, ...]],
        advantage_of: Callable[..., AdvantageParts],
        graph: GraphSize | None = None,
        facts: Callable[..., Evidence] | None = None,
    ) -> Credit:
        """The credit of a tree, row by row; a masked step gets none.

        `advantage_of` takes the fields of one row, the step id first. Penalties that
        are charged outside are subtracted here and stored as the part `charge`.
        `facts` takes the number of the row and its fields, and gives what the method's
        EQUATIONS need besides parts and settings. It is called only for rows that are
        explained (`explaining`).
        """
        masked = self.masked
        charges = self.charges
        explained = _explained.get() or {}
        credits = []
        for number, row in enumerate(rows):
            step = row[0]
            reason = masked[step]
            # Before the method is asked: a masked step may lack a value, score or note.
            if reason is not None:
                unassigned = StepCredit(step=step, advantage=None, masked=reason)
                credits.append(unassigned)
                continue
            advantage, parts = advantage_of(*row)
            if number in explained and facts is not None:
                explained[number] = facts(number, *row)
            if charges is not None:
                charge = charges[step]
                advantage -= charge
                parts["charge"] = charge
            credits.append(StepCredit(step=step, advantage=advantage, parts=parts))
        return Credit(
            task=self.tree.task.id,
            method=method,
            steps=credits,
            graph=graph,
        )


@contextmanager
def explaining(rows: Iterable[int]) -> Iterator[Explained]:
    """Collects the evidence of these rows from a method that is run in the block."""
    explained = {row: Evidence() for row in rows}
    token = _explained.set(explained)
    try:
        yield explained
    finally:
        _explained.reset(token)


def survey_of(tree: Tree, switches: Switches) -> Survey:
    """Computes the survey of a tree, with which every method starts.

    Raises DataError for a score that is too large for a reward.
    """
    steps = tree.steps
    size = len(steps)
    parents = [ROOT if step.parent is None else step.parent for step in steps]
    invalid = [step.validity is not Validity.VALID for step in steps]
    masked = [step.mask for step in steps]
    ends = [number for number, step in enumerate(steps) if step.outcome is not None]
    live = [0] * (size + 1)
    won = [0] * (size + 1)
    for end in ends:
        outcome = steps[end].outcome
        live[end] = int(outcome is not Outcome.ERRORED)
        won[end] = int(outcome is Outcome.SUCCESS)
    # Falling ids: a step has been counted before it is added to its parent.
    for number in range(size - 1, -1, -1):
        if live[number]:
            parent = parents[number]
            live[parent] += live[number]
            won[parent] += won[number]
        else:
            masked[number] = ERRORED
    by_score = switches.outcome == "score"
    earned = _earned_scores(tree, parents, live) if by_score else won
    rewards = [
        switches.success_reward * total / (leaves or 1)
        for total, leaves in zip(earned, live, strict=True)
    ]
    if by_score:
        _refuse_unbounded(tree, ends, live, rewards)
    survey = Survey(
        tree=tree,
        parents=parents,
        ends=ends,
        live=live,
        won=won,
        rewards=rewards,
        invalid=invalid,
        penalties=[],
        masked=masked,
        asked=[int(step.stop is not StopReason.OVERLONG) for step in steps],
    )
    survey.penalties = [switches.invalid_penalty * own for own in survey.penalised]
    if isinstance(switches, PenaltySwitches) and switches.penalty == "outside":
        survey.charges = survey.penalties
        survey.penalties = [0.0] * size
    return survey


def score_sums(tree: Tree) -> list[Fraction]:
    """The exact sum of the world's own rewards up to and including each step."""
    totals: list[Fraction] = []
    for step in tree.steps:
        total = Fraction(0) if step.parent is None else totals[step.parent]
        if step.reward:
            total += Fraction(step.reward)
        totals.append(total)
    return totals


def _earned_scores(
    tree: Tree,
    parents: list[int],
    live: list[int],
) -> list[float]:
    """The summed scores of the live leaves below every step; the root's is last.

    Sums are exact fractions, so the order of siblings does not change rounding.
    """
    # Along the path first: a leaf's score is what its whole trajectory earned.
    sums = score_sums(tree)
    totals = [Fraction(0)] * len(live)
    for number in range(len(parents) - 1, -1, -1):
        if not live[number]:
            continue
        if tree.steps[number].outcome is not None:
            totals[number] = sums[number]
        parent = parents[number]
        totals[parent] += totals[number]
    return [float(total) for total in totals]


def _refuse_unbounded(
    tree: Tree,
    ends: list[int],
    live: list[int],
    rewards: list[float],
) -> None:
    """Raises DataError for a score that is too large for a reward."""
    for end in ends:
        if live[end] and not abs(rewards[end]) <= LARGEST:
            raise DataError(
                f"task {shown(tree.task.id)}: steps[{end}]: its trajectory's score "
                f"gives an outcome reward of {rewards[end]:g}, beyond {LARGEST:g}; "
                "lower credit.success_reward, or set credit.outcome to success"
            )
