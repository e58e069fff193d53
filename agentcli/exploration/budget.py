"""What bounds the growing of trees: a tree's leaf budget, its wall clock where one is
set, and the budget of a whole rollout.

The deadline is off by default. With one, what a tree holds depends on how fast policy
and engines were, so the same seed no longer means the same bytes.

A rollout's budget counts generated tokens, steps or leaves, of the ledgers of its trees
in the panel's order: a tree counts if less than the budget was spent before it. So
every method stops at the same cost but for its last tree, and which trees count depends
on the trees alone: not on concurrency, and not on an interruption. The panel is walked
once. A tree is begun only while those before it are not expected to spend the budget,
so that little is grown in vain.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcli.errors import UsageError
from agentcli.exploration.actor import Actor
from agentcli.records.settings import Count, RolloutSettings, Settings
from agentcli.records.types import Ledger, Task, Tree

Explore = Callable[[Actor, RolloutSettings], Awaitable[Tree]]
"""An exploration method; its settings are of the class that it is annotated with."""

UNITS = {"tokens": "generated_tokens", "steps": "steps", "leaves": "leaves"}
"""What a budget may count, and the ledger's name for it."""


class RootedRollout(RolloutSettings, kw_only=True):
    """Settings of the methods that begin with several trajectories and fork these."""

    roots: Count = 4
    """Trajectories that start from the initial state before any fork: M of spark, N0 of
    carl.
    """

    def check(self) -> None:
        """Raises UsageError when the first trajectories exceed the leaf budget."""
        if self.roots > self.leaves:
            raise UsageError(
                f"rollout.roots is {self.roots}, more than rollout.leaves "
                f"({self.leaves}); lower --roots"
            )


def within_deadline(explore: Explore) -> Explore:
    """`explore`, ended after `deadline_seconds`: see Actor.cut for what becomes of the
    tree.
    """

    async def bounded(actor: Actor, settings: RolloutSettings) -> Tree:
        if settings.deadline_seconds is None:
            return await explore(actor, settings)
        try:
            async with asyncio.timeout(settings.deadline_seconds) as clock:
                return await explore(actor, settings)
        except TimeoutError:
            if not clock.expired():
                raise
        why = (
            f"the tree was not finished within {settings.deadline_seconds:g} s "
            "(rollout.deadline_seconds)"
        )
        return actor.cut(settings.method, why, settings.minimum_leaves)

    return bounded


@dataclass(frozen=True)
class Budget:
    """So many tokens, steps or leaves for a whole rollout."""

    unit: str
    limit: int

    def cost(self, ledger: Ledger) -> int:
        """What a ledger says in this budget's unit."""
        cost: int = getattr(ledger, UNITS[self.unit])
        return cost


def highest(unit: str, settings: Settings) -> int:
    """What one tree may cost at most in tokens, steps or leaves, votes aside."""
    leaves, steps, tokens = (
        settings.rollout.leaves,
        settings.environment.max_steps,
        settings.policy.max_tokens,
    )
    moves = settings.rollout.moves_per_step
    draws = 1 + settings.rollout.distinct
    return (
        leaves
        * {"leaves": 1, "steps": steps * moves, "tokens": steps * tokens * draws}[unit]
    )


def parse_budget(text: str | None) -> Budget | None:
    """The text "tokens=20000" as Budget("tokens", 20000); None stays None. Raises
    UsageError.
    """
    if text is None:
        return None
    unit, _, number = text.partition("=")
    if unit not in UNITS or not number.isdecimal() or int(number) == 0:
        raise UsageError(
            f"the budget is {text!r}; write tokens=N, steps=N or leaves=N with N from 1"
        )
    return Budget(unit, int(number))


class Allowance:
    """Which trees of a panel a budget pays for, while they are grown out of order.
    Without a budget: all.

    `known` holds the ledgers of trees that were grown earlier, by task id. `settings`
    tell what a tree may cost at most.
    """

    def __init__(
        self,
        budget: Budget | None,
        tasks: Sequence[Task],
        settings: Settings,
        known: Mapping[str, Ledger] | None = None,
    ) -> None:
        self._budget = budget
        self._highest = highest(budget.unit, settings) if budget is not None else 0
        self._places = {task.id: place for place, task in enumerate(tasks)}
        self._costs: list[int | None] = [None] * len(tasks)
        self._begun = len(known or {})
        self._charged = asyncio.Condition()
        for task, ledger in (known or {}).items():
            self._note(task, ledger)

    async def charge(self, tree: Tree) -> None:
        """A tree is finished."""
        async with self._charged:
            self._note(tree.task.id, tree.ledger)
            self._charged.notify_all()

    async def admits(self, task: Task) -> bool:
        """Whether this task's tree is to be begun, once that can be said: what those
        before it are expected to cost must not reach the budget. Asked once for each
        task, in their order.
        """
        async with self._charged:
            await self._charged.wait_for(
                lambda: not self.pays(task) or self._expected(task) < self._limit
            )
        self._begun += 1
        return self.pays(task)

    def pays(self, task: Task) -> bool:
        """Whether less than the budget was spent before this task. No is final; yes is
        so once all trees before it are finished.
        """
        return sum(cost or 0 for cost in self._before(task)) < self._limit

    def paid(self, tasks: Sequence[Task]) -> list[Task]:
        """Those of `tasks` that it pays for."""
        return [task for task in tasks if self.pays(task)]

    def report(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """For the manifest: unit, limit, what the trees of `tasks` cost and how many
        they are; nothing without a budget.
        """
        if self._budget is None:
            return {}
        spent = sum(self._costs[self._places[task.id]] or 0 for task in tasks)
        return {
            "budget": {
                "unit": self._budget.unit,
                "limit": self._budget.limit,
                "spent": spent,
                "trees": len(tasks),
            }
        }

    def remainder(self, tasks: Sequence[Task]) -> str | None:
        """One line when the panel ended before the budget did."""
        for told in self.report(tasks).values():
            if told["spent"] < told["limit"]:
                return (
                    f"the budget outlasts the panel: its {told['trees']} tasks took "
                    f"{told['spent']} of {told['limit']} {told['unit']}; more tasks "
                    "or leaves would spend the rest"
                )
        return None

    @property
    def _limit(self) -> float:
        return math.inf if self._budget is None else self._budget.limit

    def _before(self, task: Task) -> list[int | None]:
        return [] if self._budget is None else self._costs[: self._places[task.id]]

    def _expected(self, task: Task) -> float:
        """What the trees before this task will have cost. An unfinished one counts as
        the mean of all that were begun, those that still grow taken at the highest: the
        cheap ones finish first, and their mean alone would be too low.
        """
        known = [cost for cost in self._costs if cost is not None]
        growing = self._begun - len(known)
        each = (
            (sum(known) + growing * self._highest) / self._begun
            if self._begun
            else self._highest
        )
        return sum(each if cost is None else cost for cost in self._before(task))

    def _note(self, task: str, ledger: Ledger) -> None:
        if self._budget is not None and task in self._places:
            self._costs[self._places[task]] = self._budget.cost(ledger)
