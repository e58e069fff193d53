"""The budget of a whole rollout, in generated tokens, steps, leaves or mixed groups.

A group is mixed if it has a success and a failure. Where outcomes are rewarded, only
such a tree teaches by comparison, so a budget of groups is DAPO's dynamic sampling.
Under `credit.outcome: score` two failures may differ, and still count as no group.

Costs are added up from the ledgers in the panel's order. A tree counts if less than the
budget was spent before it. So every method stops at the same cost, apart from its last
tree. Which trees count depends on the trees alone, not on concurrency or interruptions.
The panel is gone through once. A tree is begun only if the trees before it are not
expected to spend the budget, so that little work is thrown away.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcli.errors import UsageError
from agentcli.records.settings import Settings
from agentcli.records.types import Ledger, Outcome, Task, Tree

UNITS = {"tokens": "generated_tokens", "steps": "steps", "leaves": "leaves"}
"""The units of a budget that a ledger counts, each with its field."""
GROUPS = "groups"
"""The unit that counts trees with a success and a failure."""
MARGIN = 1.25
"""Trees with short responses finish first; those still growing have longer ones."""


@dataclass(frozen=True)
class Budget:
    """The most tokens, steps, leaves or mixed groups for a whole rollout."""

    unit: str
    limit: int

    def cost(self, ledger: Ledger, mixed: bool) -> int:
        """What a tree with this ledger costs in this budget's unit."""
        if self.unit == GROUPS:
            return int(mixed)
        cost: int = getattr(ledger, UNITS[self.unit])
        return cost


def is_mixed(tree: Tree) -> bool:
    """Whether some leaves succeeded and others did not; errored ones do not count."""
    outcomes = {step.outcome for step in tree.steps} - {None, Outcome.ERRORED}
    return Outcome.SUCCESS in outcomes and len(outcomes) > 1


def highest(unit: str, settings: Settings) -> int:
    """The most that one tree can cost in the unit of a budget."""
    rollout = settings.rollout
    leaves, responses = rollout.most(settings.environment.max_steps)
    limits = {
        GROUPS: 1,
        "leaves": leaves,
        "steps": responses * rollout.moves_per_step,
        "tokens": responses * rollout.draws * settings.policy.max_tokens,
    }
    return limits[unit]


def parse_budget(text: str | None) -> Budget | None:
    """The text "tokens=20000" as Budget("tokens", 20000); None stays None.

    Raises UsageError for another unit, and for a number that is not positive.
    """
    if text is None:
        return None
    unit, _, number = text.partition("=")
    known = unit == GROUPS or unit in UNITS
    # isdigit() would accept a superscript, which int() does not.
    if not known or not number.isdecimal() or int(number) == 0:
        raise UsageError(
            f"rollout.budget: {text!r}; write tokens=N, steps=N, leaves=N or groups=N "
            "with N from 1"
        )
    return Budget(unit, int(number))


class Allowance:
    """The trees of a panel that a budget pays for, while they grow out of order.

    Without a budget, all are paid for. `known` has the ledgers of trees that were grown
    earlier and whether they are mixed, by task id. `settings` determine the most that a
    tree can cost.
    """

    def __init__(
        self,
        budget: Budget | None,
        tasks: Sequence[Task],
        settings: Settings,
        known: Mapping[str, tuple[Ledger, bool]] | None = None,
    ) -> None:
        known = known or {}
        self._budget = budget
        self._limit = math.inf
        self._highest = self._most_steps = 0
        if budget is not None:
            self._limit = budget.limit
            self._highest = highest(budget.unit, settings)
            self._most_steps = highest("steps", settings)
        self._longest = 0.0
        """The most tokens a step of any finished tree, in its mean over steps."""
        self._places = {task.id: place for place, task in enumerate(tasks)}
        self._costs: list[int | None] = [None] * len(tasks)
        """By place in the panel; None where the tree is not finished."""
        self._begun = len(known)
        self._charged = asyncio.Condition()
        for task_id, grown in known.items():
            self._note(task_id, *grown)

    async def charge(self, tree: Tree) -> None:
        """Counts a finished tree."""
        async with self._charged:
            self._note(tree.task.id, tree.ledger, is_mixed(tree))
            self._charged.notify_all()

    async def admits(self, task: Task) -> bool:
        """Whether this task's tree should be begun; waits until that is decided.

        It is begun if the trees before it are not expected to spend the budget. Call it
        once per task, in the panel's order.
        """

        def decided() -> bool:
            # `pays` first: its False is final, so there is nothing left to wait for.
            return not self.pays(task) or self._expected(task) < self._limit

        async with self._charged:
            await self._charged.wait_for(decided)
        self._begun += 1
        # The wait also ends when the budget is found to be spent.
        return self.pays(task)

    def pays(self, task: Task) -> bool:
        """Whether less than the budget was spent before this task.

        False is final; True is final once all trees before it are finished.
        """
        spent = sum(cost or 0 for cost in self._before(task))
        return spent < self._limit

    def paid(self, tasks: Sequence[Task]) -> list[Task]:
        """The tasks that the budget pays for."""
        return [task for task in tasks if self.pays(task)]

    def report(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """The manifest's entry: the budget, and what the trees of `tasks` cost.

        Empty without a budget.
        """
        if self._budget is None:
            return {}
        spent = self._spent(tasks)
        return {
            "budget": {
                "unit": self._budget.unit,
                "limit": self._budget.limit,
                "spent": spent,
                "trees": len(tasks),
            }
        }

    def remainder(self, tasks: Sequence[Task]) -> str | None:
        """One line if the panel ended before the budget was spent, else None."""
        budget = self._budget
        if budget is None:
            return None
        spent = self._spent(tasks)
        if spent >= budget.limit:
            return None
        return (
            f"the budget outlasts the panel: its {len(tasks)} tasks took {spent} of "
            f"{budget.limit} {budget.unit}; more tasks or leaves would spend the rest"
        )

    def _spent(self, tasks: Sequence[Task]) -> int:
        spent = 0
        for task in tasks:
            place = self._places[task.id]
            spent += self._costs[place] or 0
        return spent

    def _before(self, task: Task) -> list[int | None]:
        if self._budget is None:
            return []
        return self._costs[: self._places[task.id]]

    def _expected(self, task: Task) -> float:
        """The expected cost of the trees before this task, once all are finished.

        An unfinished tree counts with the mean over all trees begun so far. In this
        mean, trees that are still growing count with the most that one may cost: cheap
        trees finish first, so their mean alone would be too low.
        """
        finished = [cost for cost in self._costs if cost is not None]
        growing = self._begun - len(finished)
        most = self._most()
        mean = most
        if self._begun:
            mean = (sum(finished) + growing * most) / self._begun
        costs = self._before(task)
        return sum(mean if cost is None else cost for cost in costs)

    def _most(self) -> float:
        """The most that a growing tree may cost, as far as finished ones tell.

        Of tokens: `MARGIN` as many for each step as in any of those. Trees often take
        all their steps, while responses are hardly ever as long as they may be.
        """
        if self._budget is None or self._budget.unit != "tokens" or not self._longest:
            return self._highest
        return min(self._highest, MARGIN * self._longest * self._most_steps)

    def _note(self, task_id: str, ledger: Ledger, mixed: bool) -> None:
        if self._budget is not None:
            place = self._places[task_id]
            if ledger.steps:
                longest = ledger.generated_tokens / ledger.steps
                self._longest = max(self._longest, longest)
            self._costs[place] = self._budget.cost(ledger, mixed)
