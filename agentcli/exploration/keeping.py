"""The steps of a growing tree, by lineage, and what the tree cost."""

from collections.abc import Iterable, Mapping

from agentcli.exploration.nodes import Lineage, Node
from agentcli.records.siblings import by_place, was_sampled
from agentcli.records.types import Ledger, Outcome, Step


class Steps:
    """The steps of one tree, and those that were executed and left out of it."""

    def __init__(self) -> None:
        self._kept: dict[Lineage, Step] = {}
        self._left_out: dict[Lineage, Step] = {}

    def keep(self, lineage: Lineage, step: Step) -> None:
        """Puts a step into the tree."""
        self._kept[lineage] = step

    def prompt_before(self, lineage: Lineage) -> str:
        """The prompt of the step before a first child; "" for any other step."""
        before = self._kept.get(lineage[:-1])
        if before is None or lineage[-1] > 0:
            return ""
        return before.prompt

    def leave_out(self, lineage: Lineage) -> None:
        """Takes a step out of the tree; its cost stays charged."""
        self._left_out[lineage] = self._kept.pop(lineage)

    def keep_only(self, trajectory: Iterable[Node]) -> None:
        """Leaves out whatever has branched off a trajectory."""
        path = {node.lineage for node in trajectory}
        roots = {lineage[:1] for lineage in path}
        for lineage in self._kept.keys() - path:
            # The other trajectories from the initial state are not branches of it.
            if lineage[:1] in roots:
                self.leave_out(lineage)

    def drop_unfinished(self, minimum: int) -> bool:
        """Leaves out every trajectory without an end.

        Does nothing, and says False, unless at least `minimum` ended without an error.
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
        """Makes the tip of every trajectory without an end an errored leaf.

        Returns False where there is none.
        """
        failed = False
        for lineage in self._leaves():
            step = self._kept[lineage]
            if step.outcome is None:
                _fail(step, why)
                failed = True
        return failed

    def fail_below(self, lineage: Lineage, why: str) -> None:
        """Makes the leaves at or below a step errored ones.

        Makes all leaves errored ones where the tree has none there.
        """
        leaves = self._leaves()
        depth = len(lineage)
        below = [leaf for leaf in leaves if leaf[:depth] == lineage]
        for leaf in below or leaves:
            step = self._kept[leaf]
            # The first fault of a leaf is the one to report.
            if step.outcome is not Outcome.ERRORED:
                _fail(step, why)

    def note(self, lineage: Lineage, values: Mapping[str, float | str]) -> None:
        """Adds to the notes of a step, which may have been left out."""
        step = self._kept.get(lineage) or self._left_out[lineage]
        notes = {**step.notes, **values}
        # Which of two values was noted first may depend on timing.
        step.notes = dict(sorted(notes.items()))

    def next_root(self) -> int:
        """The index of a trajectory beside all that began."""
        taken = [lineage[0] for lineage in self._kept]
        return max(taken, default=-1) + 1

    def in_order(self) -> list[Step]:
        """The steps in lineage order, given their ids and parents."""
        ids: dict[Lineage, int] = {}
        steps = []
        for position, lineage in enumerate(sorted(self._kept)):
            step = self._kept[lineage]
            step.id = position
            step.parent = ids.get(lineage[:-1])
            ids[lineage] = position
            steps.append(step)
        return steps

    def charge(self, ledger: Ledger) -> None:
        """Fills in what the steps come to, once they are in order."""
        ledger.steps = 0
        ledger.forks = 0
        for steps in (self._kept, self._left_out):
            for lineage, step in steps.items():
                ledger.steps += _executed(step)
                # A second trajectory from the initial state is not a fork.
                if len(lineage) > 1 and lineage[-1] > 0:
                    ledger.forks += 1
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
    """Steps of the environment, at least one for a response.

    None where the policy or a lone engine broke.
    """
    if step.moves:
        return len(step.moves)
    return int(step.error is None and was_sampled(step))
