"""A walk over a panel: plays its tasks and writes one file of records in panel order.

Rollouts and evaluations are walks. A killed walk can be resumed: tasks whose records
are complete and free of errored leaves are kept, and the others are played. At the end
the file is in panel order again, so an interrupted and an uninterrupted walk give the
same bytes. With a budget, the walk ends when the trees have cost that much
(exploration/budget.py); the manifest then records the part of the panel that was
played.
"""

from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from agentcli.errors import DataError, UsageError
from agentcli.exploration.budget import Allowance, parse_budget
from agentcli.records.faults import shown
from agentcli.records.regular import is_there
from agentcli.records.settings import Settings
from agentcli.records.shards import ShardExtent, WholePanel
from agentcli.records.types import Ledger, Panel, StageRecord
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.harvest import (
    Seedling,
    TimedTree,
    grow,
    harvest,
)
from agentcli.stages.panels import make_panel, parse_shard
from agentcli.stages.sampling import SamplingPlan
from agentcli.stages.session import Session
from agentcli.stages.tally import Tally
from agentcli.stages.workplace import Workplace, open_grower


@dataclass(frozen=True, kw_only=True)
class WalkPlan(SamplingPlan):
    """A walk over a panel, or over a shard of one."""

    whole: Panel
    """The panel of which `panel` is a shard; without shards, the same panel."""

    @property
    def extent(self) -> dict[str, Any]:
        """The ShardExtent for the manifest; empty without shards."""
        shard = parse_shard(self.settings.environment.shard)
        if shard is None:
            return {}
        panel = self.whole
        whole = WholePanel(panel.name, len(panel.tasks), panel.sha256)
        return {"shard": msgspec.to_builtins(ShardExtent(shard, whole))}


def part_to_walk(settings: Settings, whole: Panel) -> Panel:
    """The panel, or the shard of it that the settings select.

    Raises UsageError for a shard that is misspelt or empty, or combined with a budget.
    """
    shard = parse_shard(settings.environment.shard)
    if shard is None:
        return whole
    # A budget counts the cost of the whole panel's trees, in order.
    if settings.rollout.budget is not None:
        raise UsageError(
            f"environment.shard {shard}: a budget ({settings.rollout.budget}) counts "
            "over the whole panel; leave one of the two out"
        )
    tasks = list(shard.part(whole.tasks))
    if not tasks:
        raise UsageError(
            f"environment.shard {shard}: the panel has only {len(whole.tasks)} tasks; "
            "take fewer shards"
        )
    name = f"{whole.name}/shard {shard.index} of {shard.count}"
    return make_panel(name, whole.world, tasks)


class FinishedTask(NamedTuple):
    """A task that need not be played again."""

    ledger: Ledger
    success: float
    """Share of its leaves that succeeded; none is errored."""

    @property
    def is_mixed(self) -> bool:
        """Whether some leaves succeeded and others did not."""
        return 0 < self.success < 1


class Records(Protocol):
    """The records file of a walk."""

    path: Path

    def complete(self) -> dict[str, FinishedTask]:
        """The tasks that are complete. Raises DataError for a damaged file."""

    def keep_only(self, tasks: Collection[str], session: Session) -> None:
        """Starts the stage and drops the records of other tasks, and a torn last line.

        Raises DataError for records that cannot be continued.
        """

    def appending(
        self, session: Session
    ) -> AbstractContextManager[Callable[[TimedTree], None]]:
        """A function that appends the records of a tree."""

    def put_in_order(self, tasks: Sequence[str]) -> None:
        """Sorts the records by task, and drops those of other tasks."""


@dataclass(frozen=True, kw_only=True)
class PanelWalk:
    """The result of a walk."""

    panel: Panel
    """The part of the panel that was played; without a budget, all of it."""
    extent: dict[str, Any]
    """The budget spent, the shard, and the number of repeated calls, for the manifest.
    """
    sampled: Tally
    """The trees grown now, without those kept from earlier."""
    seconds: Mapping[str, float]


async def walk(
    plan: WalkPlan,
    session: Session,
    records: Records,
    title: str,
    *,
    ended: StageRecord | None,
    workplace: Workplace | None = None,
) -> PanelWalk | StageRecord:
    """Grows the missing trees.

    If none is missing and the stage has `ended`, its entry is returned. Engines and
    policy come from `workplace`, or are started here when a tree has to be grown.
    Raises DataError for records of another panel.
    """
    tasks = plan.panel.tasks
    settings = plan.settings
    continued = session.resumed and is_there(records.path)
    kept = records.complete() if continued else {}
    refuse_other_tasks(records.path, kept, plan.panel)
    budget = parse_budget(settings.rollout.budget)
    known = {task: (each.ledger, each.is_mixed) for task, each in kept.items()}
    allowance = Allowance(budget, tasks, settings, known)
    owed = [task for task in allowance.paid(tasks) if task.id not in kept]
    if ended is not None and not owed:
        return ended
    if continued:
        records.keep_only(kept, session)
    sampled = Tally(sum(finished.ledger.leaves for finished in kept.values()))
    seconds: dict[str, float] = {}
    retries = 0
    standing = Standing(
        title,
        total=len(tasks),
        done=len(kept),
        success=mean_success(kept.values()),
        together=settings.in_flight,
    )
    if owed:
        session.progress.wait("loading model" if plan.model else "starting engines")
        jobs = [Seedling(task, plan.seed) for task in owed]
        async with open_grower(plan, session.progress, workplace) as grower:
            with _storing(records, session, sampled) as store:
                trees = grow(grower, jobs, settings.in_flight, allowance)
                await harvest(session.progress, standing, trees, store)
            seconds = grower.seconds()
            retries = grower.retries
    else:
        # A full bar shows the final state of the stage.
        session.progress.start(standing)
        session.progress.stop()
    panel = walked_part(plan.panel, allowance, session.progress)
    if kept:
        records.put_in_order([task.id for task in panel.tasks])
    return PanelWalk(
        panel=panel,
        extent=allowance.report(panel.tasks) | plan.extent | retried(session, retries),
        sampled=sampled,
        seconds=seconds,
    )


@contextmanager
def _storing(
    records: Records,
    session: Session,
    sampled: Tally,
) -> Iterator[Callable[[TimedTree], bool]]:
    """A function that writes a tree and counts it."""
    with records.appending(session) as write:

        def store(grown: TimedTree) -> bool:
            write(grown)
            sampled.add(grown.tree)
            return True

        yield store


def retried(session: Session, calls: int) -> dict[str, int]:
    """The number of repeated engine calls, for the manifest; also notes it."""
    if calls == 0:
        return {}
    session.progress.note(
        f"{calls} engine calls were made once more on a fresh process, because theirs "
        "died or hung"
    )
    return {"engine_retries": calls}


def refuse_other_tasks(path: Path, kept: Iterable[str], panel: Panel) -> None:
    """Raises DataError for the first task in `kept` that is not in the panel."""
    known = {task.id for task in panel.tasks}
    other = next((task for task in kept if task not in known), None)
    if other is not None:
        raise DataError(
            f"{path}: task {shown(other)} is not one of panel {panel.name}'s; go on "
            "with the panel that this was written with, or use --overwrite"
        )


def walked_part(panel: Panel, allowance: Allowance, progress: Progress) -> Panel:
    """The panel, cut off where the budget ended; notes a budget that is left over."""
    tasks = allowance.paid(panel.tasks)
    remainder = allowance.remainder(tasks)
    if remainder:
        progress.note(remainder)
    if len(tasks) == len(panel.tasks):
        return panel
    name = f"{panel.name}/first {len(tasks)}"
    return make_panel(name, panel.world, tasks)


def mean_success(kept: Collection[FinishedTask]) -> float | None:
    """Mean share of success; None without any task."""
    if not kept:
        return None
    return sum(task.success for task in kept) / len(kept)
