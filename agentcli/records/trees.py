"""Traversals of a tree (children, leaves, paths), and its validation.

No traversal is recursive, so trees may have any depth.
"""

import math
from collections.abc import Iterator, Set
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec

from agentcli.errors import DataError
from agentcli.records.faults import UNREADABLE, shown
from agentcli.records.files import read_numbered
from agentcli.records.grouping import grouped
from agentcli.records.types import (
    LARGEST_LOGPROB,
    LARGEST_REWARD,
    LEAST_LOGPROB,
    Credit,
    Move,
    Outcome,
    Step,
    StopReason,
    Task,
    Tree,
)


class TreeHead(msgspec.Struct):
    """Which task a tree is of. The rest is not decoded."""

    task: Task


class RowHead(msgspec.Struct):
    """Which task an episode, or a line of credit, is of."""

    task: str


class ToolFunction(msgspec.Struct):
    """What the schema of a tool must name."""

    name: Annotated[str, msgspec.Meta(min_length=1)]


class ToolSchema(msgspec.Struct):
    """One of the tools that a chat template shows; a template may read more of it."""

    function: ToolFunction


def children(tree: Tree) -> dict[int | None, list[Step]]:
    """Steps by parent id, siblings in order of creation.

    Steps that start at the initial state have the parent None.
    """
    return grouped((step.parent, step) for step in tree.steps)


def step_range(tree: Tree) -> str:
    """The ids that a user may name: "the steps 0 to 7", "no steps"."""
    return f"the steps 0 to {len(tree.steps) - 1}" if tree.steps else "no steps"


def leaves(tree: Tree) -> list[Step]:
    """Steps without children, in order of creation."""
    parents = {step.parent for step in tree.steps}
    return [step for step in tree.steps if step.id not in parents]


def path(tree: Tree, leaf: Step) -> list[Step]:
    """The trajectory that ends in `leaf`, root first."""
    step = leaf
    steps = [step]
    while step.parent is not None:
        step = tree.steps[step.parent]
        steps.append(step)
    steps.reverse()
    return steps


def paths(tree: Tree) -> list[list[Step]]:
    """All trajectories, in the order of their leaves."""
    return [path(tree, leaf) for leaf in leaves(tree)]


def unbroken_paths(tree: Tree) -> list[list[Step]]:
    """The trajectories that are not errored."""
    return [walk for walk in paths(tree) if walk[-1].outcome is not Outcome.ERRORED]


def first_phase(tree: Tree) -> set[int]:
    """The steps of the first Tree.roots trajectories, before any fork (CARL's N0).

    These are the first children of the initial state and, from each of them on, the
    first child of every step, in the order of their ids. No step without Tree.roots.
    Where a deadline (rollout.deadline_seconds) left out a trajectory, a fork from it
    that ended stands in its place.
    """
    first: set[int] = set()
    begun = 0
    continued: set[int] = set()
    for step in tree.steps:
        if step.parent is None:
            begun += 1
            if begun <= (tree.roots or 0):
                first.add(step.id)
        # Forks get the next free index, so the first child of a step is the one that
        # its own trajectory went on to.
        elif step.parent in first and step.parent not in continued:
            continued.add(step.parent)
            first.add(step.id)
    return first


def not_forked(tree: Tree, live: Set[int]) -> set[int]:
    """The steps of the first phase whose state was not forked later.

    A fork counts if its step is in `live`. The first actions of the trajectories are
    siblings from the start, and do not count as forked.
    """
    first = first_phase(tree)
    later = live - first
    forked = {step.parent for step in tree.steps if step.id in later}
    return {step for step in first if tree.steps[step].parent not in forked}


def depths(tree: Tree) -> list[int]:
    """How many steps come before each step, by its id."""
    before: list[int] = []
    for step in tree.steps:
        before.append(0 if step.parent is None else before[step.parent] + 1)
    return before


def read_trees(
    file: Path, opened: BinaryIO | None = None
) -> Iterator[tuple[int, Tree]]:
    """Streams (line, tree) from a trees file and validates each tree.

    Raises DataError with file and line, as `read_numbered` and `validate_tree` do.
    """
    for line, tree in read_numbered(file, Tree, file=opened):
        # The decoder has checked the numbers against the bounds of types.py.
        _refuse_shape(tree, f"{file}:{line}")
        yield line, tree


def read_with_credit(
    trees: Path, credit: Path
) -> Iterator[tuple[tuple[int, Tree], tuple[int, Credit]]]:
    """Streams every tree with its credit and its line, both validated.

    Raises DataError for damaged files, and for files that do not belong together.
    """
    pairs = zip_longest(read_trees(trees), read_numbered(credit, Credit))
    for number, (numbered_tree, numbered_credit) in enumerate(pairs):
        if numbered_tree is None or numbered_credit is None:
            short, long = (trees, credit) if numbered_tree is None else (credit, trees)
            raise DataError(
                f"{short}: ends after {number} records, {long} has more; run "
                "assign-credit with --overwrite"
            )
        line, tree_credit = numbered_credit
        validate_credit(tree_credit, numbered_tree[1], f"{credit}:{line}")
        yield numbered_tree, numbered_credit


def validate_tree(tree: Tree, place: str = "tree") -> None:
    """Checks what the types cannot express.

    Ids are positions, and parents come before their children. Leaves, and only leaves,
    have outcomes. There is one log-probability per token id. Every copy moves at most
    once in a step. Numbers are finite and within the bounds of types.py; a tree made in
    this process has not been checked by a reader. Raises DataError naming `place` and
    the step.
    """
    _refuse_shape(tree, place)
    for step in tree.steps:
        fault = _wrong_number(step)
        if fault is not None:
            raise _damaged(tree, place, step.id, fault)


def _refuse_shape(tree: Tree, place: str) -> None:
    """The checks of `validate_tree`, but for those of numbers."""
    refuse_structure(tree, place)
    for step in tree.steps:
        fault = _wrong_count(step) or _wrong_tools(step)
        if fault is not None:
            raise _damaged(tree, place, step.id, fault)


def refuse_structure(tree: Tree, place: str) -> None:
    """The checks of `validate_tree` for ids, parents and outcomes."""
    for position, step in enumerate(tree.steps):
        fault = _misplaced(step, position)
        if fault is not None:
            raise _damaged(tree, place, position, fault)
    # Only now: ends are judged by parents, which the first pass has checked.
    parents = {step.parent for step in tree.steps}
    for step in tree.steps:
        fault = _wrong_end(step, step.id in parents)
        if fault is not None:
            raise _damaged(tree, place, step.id, fault)


def validate_credit(credit: Credit, tree: Tree, place: str = "credit") -> None:
    """Checks that credit belongs to this valid tree, and only to steps that it has.

    Raises DataError naming `place` and the entry.
    """
    task = shown(tree.task.id)
    if credit.task != tree.task.id:
        raise DataError(
            f"{place}: task: is {shown(credit.task)}, the tree's is {task}; run "
            "assign-credit with --overwrite"
        )
    length = len(tree.steps)
    for position, entry in enumerate(credit.steps):
        if not 0 <= entry.step < length:
            raise DataError(
                f"{place}: steps[{position}].step: {entry.step} is not a step of task "
                f"{task}, which has {length}; run assign-credit with --overwrite"
            )


def _damaged(tree: Tree, place: str, position: int, fault: str) -> DataError:
    task = shown(tree.task.id)
    return DataError(f"{place}: task {task}: steps[{position}].{fault}")


def _misplaced(step: Step, position: int) -> str | None:
    """The field that breaks the structure of the steps, and why; None if none does."""
    if step.id != position:
        return f"id: is {step.id}, must be its position {position}"
    if step.parent is not None and not 0 <= step.parent < position:
        return f"parent: {step.parent} is not an earlier step"
    if step.continues and (step.parent is None or step.system):
        return "continues: a step without a parent, or with a system message, begins"
    return None


def _wrong_end(step: Step, inner: bool) -> str | None:
    """The field that ends a trajectory wrongly, and why; None if none does."""
    if inner and step.outcome is not None:
        return "outcome: an inner step has an outcome"
    if not inner and step.outcome is None:
        return "outcome: a leaf has no outcome"
    if step.stop is StopReason.OVERLONG and step.outcome is not Outcome.FAILURE:
        outcome = step.outcome or "none"
        return f"stop: overlong, which is a failure, but the outcome is {outcome}"
    return None


def _wrong_count(step: Step) -> str | None:
    """The list that has a wrong length, and why; None if none has."""
    if len(step.token_ids) != len(step.logprobs):
        return f"logprobs: {len(step.logprobs)} for {len(step.token_ids)} token_ids"
    if step.moves:
        copies = {move.copy for move in step.moves}
        if len(copies) < len(step.moves):
            return "moves: one copy moves twice"
    return None


def _wrong_tools(step: Step) -> str | None:
    """Why the schemas of a conversation cannot be shown; None if they can."""
    if not step.tools:
        return None
    try:
        # Everything is decoded first: a template shows more than is checked here.
        read = msgspec.json.decode(step.tools, type=list[dict[str, Any]])
        schemas = msgspec.convert(read, list[ToolSchema])
    except UNREADABLE as error:
        return f"tools: {error}"
    return None if schemas else "tools: there are none"


def _wrong_number(step: Step) -> str | None:
    """The number that is out of bounds, and why; None if none is."""
    if step.logprobs and not _are_logprobs(step.logprobs):
        return "logprobs: not a finite log-probability"
    # Written with `not <=`, so that NaN is refused too.
    if not abs(step.reward) <= LARGEST_REWARD:
        return f"reward: {step.reward} is not a number within {LARGEST_REWARD:g}"
    for name in ("value", "score"):
        number = getattr(step, name)
        if isinstance(number, float) and not abs(number) <= LARGEST_REWARD:
            return f"{name}: {number} is not a number within {LARGEST_REWARD:g}"
    return None


def _are_logprobs(values: list[float]) -> bool:
    """Whether all values are finite and within bounds."""
    if min(values) < LEAST_LOGPROB or max(values) > LARGEST_LOGPROB:
        return False
    # min and max may ignore a NaN; a sum does not.
    return math.isfinite(sum(values))


def acts_by_copy(step: Step) -> list[tuple[int, Step | Move]]:
    """The moves of a step, each with its copy.

    A step in one environment is one move in copy 1. A copy moves at most once a step. A
    step whose policy was not asked has no moves.
    """
    if step.stop is StopReason.OVERLONG:
        return []
    if step.moves:
        return [(move.copy, move) for move in step.moves]
    return [(1, step)]
