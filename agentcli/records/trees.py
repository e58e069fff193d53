"""Walking a tree: children, leaves, paths, and the check that it is one. All iterative: depth is no limit."""

from agentcli.errors import DataError
from agentcli.records.types import Step, Tree


def children(tree: Tree) -> dict[int | None, list[Step]]:
    """Steps by parent id (None: those that leave the initial state), siblings in order of creation."""
    found: dict[int | None, list[Step]] = {}
    for step in tree.steps:
        found.setdefault(step.parent, []).append(step)
    return found


def leaves(tree: Tree) -> list[Step]:
    """Steps without children, in order of creation."""
    parents = {step.parent for step in tree.steps}
    return [step for step in tree.steps if step.id not in parents]


def path(tree: Tree, leaf: Step) -> list[Step]:
    """The trajectory that ends in `leaf`, root first."""
    walk = [leaf]
    while (parent := walk[-1].parent) is not None:
        walk.append(tree.steps[parent])
    return walk[::-1]


def paths(tree: Tree) -> list[list[Step]]:
    """All trajectories, in the order of their leaves."""
    return [path(tree, leaf) for leaf in leaves(tree)]


def validate_tree(tree: Tree, place: str = "tree") -> None:
    """Check what the types cannot say: ids are positions, parents come first, outcomes sit on leaves and only there,
    token ids and log-probabilities pair up and are finite. Raises DataError naming `place` and the step."""
    for position, step in enumerate(tree.steps):
        where = f"{place}: task {tree.task.id}: steps[{position}]"
        if step.id != position:
            raise DataError(f"{where}.id: is {step.id}, must be its position {position}")
        if step.parent is not None and not 0 <= step.parent < position:
            raise DataError(f"{where}.parent: {step.parent} is no earlier step")
    parents = {step.parent for step in tree.steps}
    for step in tree.steps:
        where = f"{place}: task {tree.task.id}: steps[{step.id}]"
        if (step.outcome is not None) == (step.id in parents):
            kind = "an inner step has an outcome" if step.outcome is not None else "a leaf has no outcome"
            raise DataError(f"{where}.outcome: {kind}")
        if len(step.token_ids) != len(step.logprobs):
            raise DataError(f"{where}.logprobs: {len(step.logprobs)} for {len(step.token_ids)} token_ids")
        if not all(-1e9 < value <= 1e-6 for value in step.logprobs):
            raise DataError(f"{where}.logprobs: not a finite log-probability")
        if not -1e9 < step.reward < 1e9:
            raise DataError(f"{where}.reward: {step.reward} is not finite")
