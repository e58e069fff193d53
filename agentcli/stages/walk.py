"""A walk over a panel: plays its tasks and writes one file of trees in panel order.

Rollouts and evaluations are walks. A killed walk can be resumed: tasks whose tree is
there and free of errored leaves are kept, and the others are played. At the end
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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.errors import DataError, UsageError
from agentcli.exploration.budget import Allowance, parse_budget
from agentcli.records.faults import shown
from agentcli.records.files import read_records
from agentcli.records.regular import is_there
from agentcli.records.settings import Settings
from agentcli.records.shards import ShardExtent, WholePanel
from agentcli.records.types import Ledger, Outcome, Panel, StageRecord, Tree
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.harvest import (
    Seedling,
    TimedTree,
    grow,
    harvest,
)
from agentcli.stages.ordered import write_in_order
from agentcli.stages.panels import make_panel, parse_shard
from agentcli.stages.sampling import SamplingPlan
from agentcli.stages.session import Session
from agentcli.stages.tally import share_of_success
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


class TreeFile:
    """The trees of a walk: the only thing that it writes, but for their seconds.

    played: tasks that are finished although their tree is not kept.
    """

    def __init__(
        self,
        path: Path,
        seconds: Path | None = None,
        played: Mapping[str, FinishedTask] | None = None,
    ) -> None:
        self.path = path
        self._seconds = seconds
        self._played = played or {}

    def complete(self) -> dict[str, FinishedTask]:
        """The finished tasks, in whose last tree no leaf errored.

        Raises DataError for a damaged file.
        """
        kept = dict(self._played)
        if not is_there(self.path):
            return kept
        for tree in read_records(self.path, Tree):
            task = tree.task.id
            kept.pop(task, None)
            if is_complete(tree):
                kept[task] = FinishedTask(tree.ledger, share_of_success(tree))
        return kept

    @contextmanager
    def appending(self, session: Session) -> Iterator[Callable[[TimedTree], bool]]:
        """A function that appends a tree and its seconds; every tree counts."""
        with ExitStack() as stack:
            write = stack.enter_context(session.appending(self.path))
            note = None
            if self._seconds is not None:
                note = stack.enter_context(session.appending(self._seconds))

            def store(grown: TimedTree) -> bool:
                # The tree is written last: if one exists, so do its seconds.
                if note is not None:
                    note(grown.seconds)
                session.keep_pictures(grown.pictures)
                write(grown.tree)
                return True

            yield store

    def put_in_order(self, tasks: Sequence[str]) -> None:
        """Sorts the trees by task; drops all but the last of a task, and other tasks'.

        A tree that errored is followed by the one that was grown in its place.
        """
        if is_there(self.path):
            write_in_order([self.path], tasks, self.path, last=True)


def is_complete(tree: Tree) -> bool:
    """Whether no leaf errored, so that the task need not be played again."""
    return all(step.outcome is not Outcome.ERRORED for step in tree.steps)


@dataclass(frozen=True, kw_only=True)
class PanelWalk:
    """The result of a walk."""

    panel: Panel
    """The part of the panel that was played; without a budget, all of it."""
    extent: dict[str, Any]
    """The budget spent, the shard, and the number of repeated calls, for the manifest.
    """
    seconds: Mapping[str, float]


async def walk(
    plan: WalkPlan,
    session: Session,
    trees: TreeFile,
    title: str,
    *,
    ended: StageRecord | None,
    workplace: Workplace | None = None,
) -> PanelWalk | StageRecord:
    """Grows the missing trees.

    If none is missing and the stage has `ended`, its entry is returned. Engines and
    policy come from `workplace`, or are started here when a tree has to be grown.
    Raises DataError for trees of another panel.
    """
    tasks = plan.panel.tasks
    settings = plan.settings
    kept = trees.complete() if session.resumed else {}
    refuse_other_tasks(trees.path, kept, plan.panel)
    budget = parse_budget(settings.rollout.budget)
    known = {task: (each.ledger, each.is_mixed) for task, each in kept.items()}
    allowance = Allowance(budget, tasks, settings, known)
    owed = [task for task in allowance.paid(tasks) if task.id not in kept]
    if ended is not None and not owed:
        return ended
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
            with trees.appending(session) as store:
                grown = grow(grower, jobs, settings.in_flight, allowance)
                await harvest(session.progress, standing, grown, store)
            seconds = grower.seconds()
            retries = grower.retries
    else:
        # A full bar shows the final state of the stage.
        session.progress.start(standing)
        session.progress.stop()
    panel = walked_part(plan.panel, allowance, session.progress)
    if session.resumed:
        session.start()
        trees.put_in_order([task.id for task in panel.tasks])
    return PanelWalk(
        panel=panel,
        extent=allowance.report(panel.tasks) | plan.extent | retried(session, retries),
        seconds=seconds,
    )


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
