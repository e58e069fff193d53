"""The steps of a growing tree, by lineage, and what the tree cost."""

from collections.abc import Iterable, Mapping

from agentcli.exploration.nodes import Lineage, Node
from agentcli.records.siblings import by_place, was_sampled
from agentcli.records.types import Ledger, Outcome, Step


class Steps:
    """The steps of one tree, and the executed steps that were left out of it."""

    def __init__(self) -> None:
        self._kept: dict[Lineage, Step] = {}
        self._left_out: dict[Lineage, Step] = {}

    def keep(self, lineage: Lineage, step: Step) -> None:
        """Adds a step to the tree."""
        self._kept[lineage] = step

    def leave_out(self, lineage: Lineage) -> None:
        """Removes a step from the tree; its cost stays charged."""
        self._left_out[lineage] = self._kept.pop(lineage)

    def keep_only(self, trajectory: Iterable[Node]) -> None:
        """Leaves out whatever branched off a trajectory."""
        path = {node.lineage for node in trajectory}
        roots = {lineage[:1] for lineage in path}
        for lineage in self._kept.keys() - path:
            # Other trajectories from the initial state are not its branches.
            if lineage[:1] in roots:
                self.leave_out(lineage)

    def drop_unfinished(self, minimum: int) -> bool:
        """Leaves out every unfinished trajectory.

        Does nothing and returns False unless at least `minimum` ended without an error.
        """
        finished = 0
        whole: set[Lineage] = set()
        for lineage, step in self._kept.items():
            if step.outcome is None:
                continue
            if step.outcome is not Outcome.ERRORED:
                finished += 1
            for depth in range(len(lineage)):
                whole.add(lineage[: depth + 1])
        if finished < minimum:
            return False
        for lineage in self._kept.keys() - whole:
            self.leave_out(lineage)
        return True

    def fail_unfinished(self, why: str) -> bool:
        """Makes the last step of every unfinished trajectory an errored leaf.

        Returns False if there is none.
        """
        last_steps = [self._kept[lineage] for lineage in self._leaves()]
        unfinished = [step for step in last_steps if step.outcome is None]
        for step in unfinished:
            _fail(step, why)
        return bool(unfinished)

    def fail_below(self, lineage: Lineage, why: str) -> None:
        """Makes the leaves at or below a step errored.

        If there are none, makes all leaves of the tree errored.
        """
        leaves = self._leaves()
        depth = len(lineage)
        below = [leaf for leaf in leaves if leaf[:depth] == lineage]
        for leaf in below or leaves:
            step = self._kept[leaf]
            # Only the first fault of a leaf is reported.
            if step.outcome is not Outcome.ERRORED:
                _fail(step, why)

    def note(self, lineage: Lineage, values: Mapping[str, float | str]) -> None:
        """Adds to the notes of a step, even if it was left out."""
        step = self._kept.get(lineage) or self._left_out[lineage]
        notes = {**step.notes, **values}
        # Which of two values was noted first may depend on timing.
        step.notes = dict(sorted(notes.items()))

    def next_root(self) -> int:
        """The index for a new trajectory from the initial state."""
        taken = [lineage[0] for lineage in self._kept]
        return max(taken, default=-1) + 1

    def in_order(self) -> list[Step]:
        """The steps in lineage order, after setting their ids and parents."""
        ids: dict[Lineage, int] = {}
        steps = []
        # A tuple sorts before those that it begins, so parents come first.
        for position, lineage in enumerate(sorted(self._kept)):
            step = self._kept[lineage]
            step.id = position
            step.parent = ids.get(lineage[:-1])
            ids[lineage] = position
            steps.append(step)
        return steps

    def charge(self, ledger: Ledger) -> None:
        """Fills in the counts of steps, forks, leaves and siblings, once in order."""
        ledger.steps = 0
        ledger.forks = 0
        for steps in (self._kept, self._left_out):
            for lineage, step in steps.items():
                ledger.steps += _executed(step)
                # A second trajectory from the initial state is not a fork.
                if len(lineage) > 1 and lineage[-1] > 0:
                    ledger.forks += 1
        # What was left out is no part of the tree, and so nobody's sibling.
        at_start, of_forks = by_place(self._kept.values())
        siblings = at_start.plus(of_forks)
        ledger.leaves = len(self._leaves())
        ledger.siblings = siblings.steps
        ledger.distinct_siblings = siblings.distinct

    def _leaves(self) -> list[Lineage]:
        inner = {lineage[:-1] for lineage in self._kept}
        return [lineage for lineage in self._kept if lineage not in inner]


def _fail(step: Step, why: str) -> None:
    step.outcome = Outcome.ERRORED
    step.error = why


def _executed(step: Step) -> int:
    """The number of environment steps for a response, at least one.

    It is 0 if the policy, or the engine of a single environment, failed.
    """
    if step.moves:
        return len(step.moves)
    return int(step.error is None and was_sampled(step))
