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

    def leave_out(self, lineages: Iterable[Lineage]) -> None:
        """Takes steps out of the tree; what they cost stays charged."""
        for lineage in lineages:
            self._left_out[lineage] = self._kept.pop(lineage)

    def keep_only(self, trajectory: Iterable[Node]) -> None:
        """Leaves out whatever has branched off a trajectory."""
        path = {node.lineage for node in trajectory}
        roots = {lineage[:1] for lineage in path if lineage}
        beside = self._kept.keys() - path
        self.leave_out([lineage for lineage in beside if lineage[:1] in roots])

    def drop_unfinished(self, minimum: int) -> bool:
        """Leaves out every trajectory without an end.

        Does nothing, and says False, unless at least `minimum` ended without an error.
        """
        finished = 0
        whole: set[Lineage] = set()
        for lineage, step in self._kept.items():
            if step.outcome is None:
                continue
            finished += step.outcome is not Outcome.ERRORED
            whole.update(lineage[:depth] for depth in range(1, len(lineage) + 1))
        if finished < minimum:
            return False
        self.leave_out(self._kept.keys() - whole)
        return True

    def fail_unfinished(self, why: str) -> bool:
        """Makes the tip of every trajectory without an end an errored leaf.

        Says False where there is none.
        """
        tips = [self._kept[lineage] for lineage in self._leaves()]
        unfinished = [step for step in tips if step.outcome is None]
        for step in unfinished:
            _fail(step, why)
        return bool(unfinished)

    def fail_below(self, lineage: Lineage, why: str) -> None:
        """Makes the leaves at or below a step errored ones.

        Makes all leaves errored ones where the tree has none there.
        """
        leaves = self._leaves()
        below = [leaf for leaf in leaves if leaf[: len(lineage)] == lineage]
        for leaf in below or leaves:
            step = self._kept[leaf]
            # The first fault of a leaf is the one to report.
            if step.outcome is not Outcome.ERRORED:
                _fail(step, why)

    def note(self, lineage: Lineage, values: Mapping[str, float | str]) -> None:
        """Adds to the notes of a step; a step that was left out takes its notes along."""
        step = self._kept.get(lineage) or self._left_out[lineage]
        notes = {**step.notes, **values}
        # Which of two values was noted first may depend on timing.
        step.notes = dict(sorted(notes.items()))

    def next_root(self) -> int:
        """The index of a trajectory beside all that began."""
        return 1 + max((lineage[0] for lineage in self._kept), default=-1)

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
        everything = [*self._kept.items(), *self._left_out.items()]
        at_start, of_forks = by_place(self._kept.values())
        siblings = at_start.plus(of_forks)
        ledger.steps = sum(_executed(step) for _, step in everything)
        ledger.leaves = len(self._leaves())
        # A second trajectory from the initial state is no fork.
        ledger.forks = sum(len(name) > 1 and name[-1] > 0 for name, _ in everything)
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
