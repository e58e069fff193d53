"""rollout: grows one tree per task of the panel.

trees.jsonl contains the trees in panel order; seconds.jsonl records how long each took.

Rollouts and evaluations are walks over a panel. A killed walk can be resumed: tasks
whose tree is there and free of errored leaves are kept, and the others are played. At
the end the file is in panel order again, so an interrupted and an uninterrupted walk
give the same bytes. With a budget, the walk ends when the trees have cost that much
(exploration/budget.py); the manifest then records the part of the panel that was
played.
"""

from collections.abc import (
    Callable,
    Hashable,
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

from agentcli.environments.protocol import World
from agentcli.errors import DataError, UsageError
from agentcli.evaluation.record import ResultsByKind
from agentcli.evaluation.summary import summarise
from agentcli.exploration.budget import Allowance, highest, parse_budget
from agentcli.policies.load import is_critic
from agentcli.records.faults import shown
from agentcli.records.files import derive_seed, read_records
from agentcli.records.grouping import mean
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.shards import ShardExtent, WholePanel
from agentcli.records.types import Ledger, Outcome, Panel, StageRecord, Tree
from agentcli.reports.standing import Progress, Standing
from agentcli.stages import sampling
from agentcli.stages.backend import TimedTree, TreeJob, grow, harvest
from agentcli.stages.cluster import Backend, open_sampler
from agentcli.stages.panels import iteration_tasks, make_panel, panel_for, parse_shard
from agentcli.stages.plan import (
    check_critic,
    check_model,
    model_sources,
    plain,
    with_model,
)
from agentcli.stages.session import Session
from agentcli.stages.tally import UNTRAINED, counted, share_of_success
from agentcli.stages.trees import task_of, write_in_order


@dataclass(frozen=True, kw_only=True)
class WalkPlan(sampling.SamplingPlan):
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
            # A task that errored may have a second tree further down; the last one counts.
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

    def put_in_order(
        self,
        keys: Sequence[Hashable],
        key_of: Callable[[bytes], Hashable] = task_of,
    ) -> None:
        """Sorts the trees by task, or by another key of their lines.

        Drops other trees, and all but the last of a key: a tree that errored is
        followed by the one that was grown in its place.
        """
        if is_there(self.path):
            write_in_order([self.path], keys, self.path, key_of, last=True)


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
    backend: Backend | None = None,
) -> PanelWalk | StageRecord:
    """Grows the missing trees.

    If none is missing and the stage has `ended`, its entry is returned. Engines and
    policy come from `backend`, or are started here when a tree has to be grown.
    Raises DataError for trees of another panel.
    """
    tasks = plan.panel.tasks
    settings = plan.settings
    kept = trees.complete() if session.resumed else {}
    # Before engines start: trees of another panel would be dropped when sorting.
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
        success=mean(task.success for task in kept.values()),
        together=settings.in_flight,
    )
    if owed:
        session.progress.wait("loading model" if plan.model else "starting engines")
        jobs = [TreeJob(task, plan.seed) for task in owed]
        async with open_sampler(plan, session.progress, backend) as sampler:
            with trees.appending(session) as store:
                grown = grow(sampler, jobs, settings.in_flight, allowance)
                await harvest(session.progress, standing, grown, store)
            seconds = sampler.seconds()
            retries = sampler.retries
    else:
        # A full bar shows the final state of the stage.
        session.progress.start(standing)
        session.progress.stop()
    panel = walked_part(plan.panel, allowance, session.progress)
    # What an earlier attempt left may be out of order, and hold trees that errored.
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


@dataclass(frozen=True, kw_only=True)
class RolloutPlan(WalkPlan):
    """A rollout that is ready to begin."""

    def counts(self) -> dict[str, int]:
        """The tasks, and the most leaves and steps that their trees can have."""
        tasks = len(self.panel.tasks)
        return {
            "tasks": tasks,
            "leaves_at_most": tasks * highest("leaves", self.settings),
            "steps_at_most": tasks * highest("steps", self.settings),
        }


def plan(
    settings: Settings,
    out: Path,
    *,
    model: str | None,
    world: World | None = None,
) -> RolloutPlan:
    """Plans a rollout into `out`; `world` is passed if it already exists.

    Raises what `check_sampling` raises, and UsageError and DataError for a panel that
    cannot be played.
    """
    world = sampling.check_sampling(settings, model, world)
    critic = settings.rollout.critic
    prm = settings.rollout.prm
    check_critic(critic, "rollout.critic", "--critic DIR")
    maker = "agentcli train RUN --set train.objective=process-reward"
    check_model(prm, "rollout.prm", "--prm DIR", maker)
    models = {"critic": critic, "prm": prm}
    appraising = {name: each for name, each in models.items() if each is not None}
    whole, seed = tasks_of(settings, world)
    run = RunDirectory(out)
    return RolloutPlan(
        stage="rollout",
        run=run,
        settings=with_model(settings, model),
        sections=sampling.SECTIONS,
        inputs={**sampling.inputs_of(settings, model), **appraising},
        sources=[
            *sampling.files_read(settings, model),
            *model_sources(critic),
            *model_sources(prm),
        ],
        outputs=[run.trees, run.seconds],
        world=world,
        model=model,
        critic=critic,
        prm=prm,
        panel=part_to_walk(settings, whole),
        whole=whole,
        seed=seed,
    )


async def perform(
    plan: RolloutPlan,
    session: Session,
    backend: Backend | None = None,
    warn: Callable[[str], None] | None = None,
) -> StageRecord:
    """Writes trees.jsonl and seconds.jsonl.

    With `warn`, the rollout is part of a training loop, which trains on everything that
    did not error. Without it, runs/latest is set to this run.
    """
    critic = plan.critic
    if critic is not None and not is_critic(critic):
        session.progress.note(
            f"rollout.critic {critic}: no critic.json there, so its value head is new "
            "and every value is 0"
        )
    walked = await walk(
        plan,
        session,
        TreeFile(plan.run.trees, plan.run.seconds),
        title=f"rollout {plan.settings.rollout.method}",
        ended=session.done,
        backend=backend,
    )
    if isinstance(walked, StageRecord):
        return session.nothing_owed(walked)
    return conclude(session, walked, warn)


def conclude(
    session: Session,
    walked: PanelWalk,
    warn: Callable[[str], None] | None = None,
) -> StageRecord:
    """Counts the trees, reports problems, and finishes the stage.

    Raises AgentCliError at the end if too many leaves errored.
    """
    tally, rows = counted(session.run.trees)

    def note(line: str) -> None:
        session.progress.note(line)
        if warn:
            warn(line)

    for line in tally.warnings(session.settings):
        note(line)
    for line in tally.misplaced_forks(session.settings):
        note(line)
    record = session.finish(
        # Inside a loop it is the loop's own folder that becomes runs/latest.
        latest=warn is None,
        panel=walked.panel.sha256,
        panel_name=walked.panel.name,
        counts=tally.counts,
        ledger=tally.ledger,
        statistics={
            **tally.statistics(),
            **walked.extent,
            **tally.temperatures,
            "results": plain(summarise(rows)),
        },
        seconds=walked.seconds,
    )
    remedy = UNTRAINED if warn else None
    # After the entry is written: the trees are good for --resume all the same.
    tally.judge_errors(session.settings, session.run.path, note, remedy)
    return record


def results_of_run(run: RunDirectory) -> ResultsByKind:
    """The results of the rollout in `run`; counted if no rollout wrote its trees."""
    record = run.finished("rollout")
    if record is None:
        return summarise(counted(run.existing_trees())[1])
    return msgspec.convert(record.statistics["results"], ResultsByKind)


def fork_depth_of(run: RunDirectory) -> int | None:
    """The median depth of the forks of the rollout in `run`; None if it has none."""
    record = run.finished("rollout")
    depth: int | None = record.statistics.get("fork_depth") if record else None
    return depth


def tasks_of(settings: Settings, world: World) -> tuple[Panel, int]:
    """The panel to play, or one iteration's part of it, and the sampling seed."""
    panel = panel_for(world, settings.environment)
    seed = settings.seed
    iteration = settings.rollout.iteration
    if iteration is None:
        return panel, seed
    per_step = settings.rollout.tasks_per_step
    tasks = iteration_tasks(panel.tasks, per_step, iteration, seed)
    part = make_panel(f"{panel.name}/iteration {iteration}", panel.world, tasks)
    # A task comes again in a later lap, and must not be sampled with the same seeds.
    return part, derive_seed(seed, "iteration", iteration)
