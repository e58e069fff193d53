"""A tree as stretches: the steps between two forks, and the branches that follow."""

from collections.abc import Iterable

import msgspec

from agentcli.records.trees import children
from agentcli.records.types import Outcome, Step, Tree


class Stretch(msgspec.Struct, kw_only=True):
    """Steps without a fork between them."""

    steps: list[Step]
    branches: list["Stretch"] = []
    """What was tried after the last step; empty where the trajectory ends."""
    trajectory: int | None = None
    """The number of the trajectory that ends here, from 1; None before a fork."""
    leaves: int
    """Trajectories that go through these steps."""
    success: int
    """Those of them that succeeded."""


def outline(tree: Tree) -> list[Stretch]:
    """The stretches that begin at the initial state."""
    # Not recursive: a trajectory may have more forks than Python has stack.
    followers = children(tree)
    leaves, success = _below(tree)
    numbers = trajectory_numbers(tree)
    roots: list[Stretch] = []
    # (the list that the stretch belongs to, its first step)
    waiting = [(roots, step) for step in reversed(followers.get(None, []))]
    while waiting:
        siblings, step = waiting.pop()
        stretch = Stretch(
            steps=[step], leaves=leaves[step.id], success=success[step.id]
        )
        siblings.append(stretch)
        while len(following := followers.get(stretch.steps[-1].id, [])) == 1:
            stretch.steps.append(following[0])
        stretch.trajectory = numbers.get(stretch.steps[-1].id)
        waiting += [(stretch.branches, child) for child in reversed(following)]
    return roots


def trajectory_numbers(tree: Tree) -> dict[int, int]:
    """The number of the trajectory that ends in a step, from 1, by step id."""
    ends = [step.id for step in tree.steps if step.outcome is not None]
    return {step: number for number, step in enumerate(ends, 1)}


def _below(tree: Tree) -> tuple[list[int], list[int]]:
    """Leaves below each step, and those of them that succeeded."""
    leaves = [int(step.outcome is not None) for step in tree.steps]
    success = [int(step.outcome is Outcome.SUCCESS) for step in tree.steps]
    # A parent comes before its children, so going backwards every count is whole when
    # it is handed on.
    for step in reversed(tree.steps):
        if step.parent is not None:
            leaves[step.parent] += leaves[step.id]
            success[step.parent] += success[step.id]
    return leaves, success


def count(stretches: Iterable[Stretch]) -> int:
    """The steps of these stretches and of all below them."""
    total = 0
    waiting = list(stretches)
    while waiting:
        stretch = waiting.pop()
        total += len(stretch.steps)
        waiting += stretch.branches
    return total
