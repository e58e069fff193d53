"""The steps of a growing tree by lineage, and those that were executed and left out of
it.
"""

from collections.abc import Iterable, Mapping

import msgspec

from agentcli.exploration.nodes import Lineage, Node
from agentcli.records.siblings import count_siblings, was_sampled
from agentcli.records.types import Ledger, Outcome, Step


class Steps:
    """The steps of one tree."""

    def __init__(self) -> None:
        self._kept: dict[Lineage, Step] = {}
        self._left_out: dict[Lineage, Step] = {}

    def keep(self, lineage: Lineage, step: Step) -> None:
        """Puts a step into the tree."""
        self._kept[lineage] = step

    def prompt_before(self, lineage: Lineage) -> str:
        """The prompt of the step before a first child; "" for any other step."""
        before = self._kept.get(lineage[:-1]) if lineage[-1] == 0 else None
        return before.prompt if before is not None else ""

    def leave_out(self, lineages: Iterable[Lineage]) -> None:
        """Takes steps out of the tree; what they cost stays charged."""
        for lineage in lineages:
            self._left_out[lineage] = self._kept.pop(lineage)

    def keep_only(self, trajectory: Iterable[Node]) -> None:
        """Leaves out whatever has branched off a trajectory."""
        kept = {node.lineage for node in trajectory}
        roots = {lineage[:1] for lineage in kept if lineage}
        self.leave_out(
            [
                lineage
                for lineage in self._kept
                if lineage[:1] in roots and lineage not in kept
            ]
        )

    def drop_unfinished(self, minimum: int) -> bool:
        """Leaves out every trajectory without an end, if at least `minimum` ended
        without an error.
        """
        ends = [
            lineage for lineage, step in self._kept.items() if step.outcome is not None
        ]
        if (
            sum(self._kept[lineage].outcome is not Outcome.ERRORED for lineage in ends)
            < minimum
        ):
            return False
        whole = {
            lineage[:depth] for lineage in ends for depth in range(1, len(lineage) + 1)
        }
        self.leave_out([lineage for lineage in self._kept if lineage not in whole])
        return True

    def fail_unfinished(self, why: str) -> bool:
        """Makes the last step of every trajectory without an end an errored leaf; False
        where there is none.
        """
        inner = {lineage[:-1] for lineage in self._kept}
        tips = [
            lineage
            for lineage, step in self._kept.items()
            if step.outcome is None and lineage not in inner
        ]
        for lineage in tips:
            self._kept[lineage] = msgspec.structs.replace(
                self._kept[lineage], outcome=Outcome.ERRORED, error=why
            )
        return bool(tips)

    def note(self, lineage: Lineage, values: Mapping[str, float | str]) -> None:
        """Adds to the notes of a step. Those of a step that was left out go with it."""
        step = self._kept.get(lineage) or self._left_out[lineage]
        notes = {**step.notes, **values}
        # Which of two values was noted first may depend on timing.
        step.notes = {name: notes[name] for name in sorted(notes)}

    def fail_below(self, lineage: Lineage, why: str) -> None:
        """Makes the leaves at or below a step errored ones; all leaves where the tree
        has none there.
        """
        inner = {lineage[:-1] for lineage in self._kept}
        leaves = [leaf for leaf in self._kept if leaf not in inner]
        below = [leaf for leaf in leaves if leaf[: len(lineage)] == lineage]
        for leaf in below or leaves:
            step = self._kept[leaf]
            if step.outcome is not Outcome.ERRORED:
                self._kept[leaf] = msgspec.structs.replace(
                    step, outcome=Outcome.ERRORED, error=why
                )

    def next_root(self) -> int:
        """The index of a trajectory beside all that began."""
        return 1 + max((lineage[0] for lineage in self._kept), default=-1)

    def in_order(self) -> list[Step]:
        """The steps in lineage order, with their ids and parents."""
        order = sorted(self._kept)
        ids = {lineage: position for position, lineage in enumerate(order)}
        steps = []
        for lineage in order:
            parent = ids.get(lineage[:-1])
            steps.append(
                msgspec.structs.replace(
                    self._kept[lineage], id=ids[lineage], parent=parent
                )
            )
        return steps

    def charge(self, ledger: Ledger) -> None:
        """Fills in what the steps come to."""
        everything = [*self._kept.items(), *self._left_out.items()]
        inner = {lineage[:-1] for lineage in self._kept}
        groups: dict[Lineage, list[Step]] = {}
        for lineage, step in self._kept.items():
            groups.setdefault(lineage[:-1], []).append(step)
        siblings = [count_siblings(group) for group in groups.values()]
        ledger.steps = sum(_executed(step) for _, step in everything)
        ledger.leaves = sum(lineage not in inner for lineage in self._kept)
        ledger.forks = sum(
            lineage[-1] > 0 for lineage, _ in everything if len(lineage) > 1
        )
        ledger.siblings = sum(count.steps for count in siblings)
        ledger.distinct_siblings = sum(count.distinct for count in siblings)


def _executed(step: Step) -> int:
    """Steps of the environment, at least one for a response; none where the policy or a
    lone engine broke.
    """
    return len(step.moves) or int(step.error is None and was_sampled(step))
