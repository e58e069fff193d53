"""demos: trajectories of an expert, or of any policy, for `sft` to learn from.

Each is a tree with one leaf. The panel is played in a seeded order, repeatedly, until
`demos.count` are written: with more demonstrations than tasks, a task gets several
trajectories. The `demos` settings define deliberate habits and noise; steps that must
not be imitated have a `mask`.

An errored episode keeps its place in the file, so that the others are the same as in a
run without errors. --resume plays it again, and drops it if it would not have been
kept.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.errors import AgentCliError, DataError
from agentcli.exploration.settings import added_fields, as_method
from agentcli.policies.demonstrator import refuse_habits
from agentcli.records.files import derive_seed, read_records
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import RolloutSettings, Settings
from agentcli.records.types import Outcome, StageRecord, Task, Tree
from agentcli.reports.standing import Standing
from agentcli.stages.harvest import (
    Grower,
    Seedling,
    TimedTree,
    grow,
    harvest,
)
from agentcli.stages.panels import iteration_tasks, panel_for
from agentcli.stages.plan import with_changes
from agentcli.stages.sampling import (
    SamplingPlan,
    check_policy,
    check_sampling,
    refuse_shard,
    sampling_inputs,
    sampling_sources,
)
from agentcli.stages.session import Session, rewriting
from agentcli.stages.tally import Tally, share_of_success, tally_of
from agentcli.stages.walk import is_complete, retried
from agentcli.stages.workplace import open_grower

PATIENCE = 20
"""The stage gives up after this many episodes per demonstration wanted and per task of
the panel.
"""


@dataclass(frozen=True, kw_only=True)
class DemosPlan(SamplingPlan):
    """Demonstrations that are ready to be played."""

    def counts(self) -> dict[str, int]:
        """The number of tasks in the panel and of demonstrations wanted."""
        return {
            "tasks": len(self.panel.tasks),
            "demonstrations": self.settings.demos.count,
        }


def plan(settings: Settings, out: Path, *, model: str | None) -> DemosPlan:
    """Plans `demos.count` trajectories for `out`; raises what `check_sampling` does."""
    served = settings.demos.policy == "openai"
    name = settings.policy.model if served else model
    settings = with_changes(settings, policy={"kind": "demonstrator", "model": name})
    rollout = as_method(settings.rollout, settings.rollout.alone, leaves=1)
    settings = msgspec.structs.replace(settings, rollout=rollout)
    refuse_shard(settings, "demos")
    world = check_sampling(settings, model)
    check_policy(settings, settings.demos.policy)
    if settings.demos.policy != "search":
        refuse_habits(settings.demos)
    run = RunDirectory(out)
    return DemosPlan(
        stage="demos",
        run=run,
        settings=settings,
        sections=("environment", "policy", "prompt", "demos"),
        conditions={"rollout": _form(settings.rollout)},
        inputs=sampling_inputs(settings, model),
        sources=sampling_sources(settings, model),
        outputs=[run.trees, run.seconds],
        world=world,
        model=model,
        panel=panel_for(world, settings.environment),
        seed=settings.seed,
    )


def _form(rollout: RolloutSettings) -> dict[str, Any]:
    """The rollout settings that an episode depends on."""
    names = [field.name for field in added_fields(rollout.method)]
    values = msgspec.to_builtins(rollout)
    return {name: values[name] for name in ("method", "overlong", *names)}


async def perform(plan: DemosPlan, session: Session) -> StageRecord:
    """Writes trees.jsonl and seconds.jsonl.

    Raises AgentCliError if only successes are kept and the policy hardly ever succeeds.
    """
    run = plan.run
    total = plan.settings.demos.count
    resumed = session.resumed and is_there(run.trees)
    if resumed and session.done:
        counts = tally_of(run.trees).counts
        if counts["trees"] == total and not counts["errored"]:
            return session.nothing_owed(session.done)
    written = _written(plan) if resumed else DemosWritten()
    sampled = Tally()
    async with open_grower(plan, session.progress) as grower:
        if written.errored:
            session.start()
            await _play_again(plan, grower, session)
            written = _written(plan)
        with (
            session.appending(run.trees) as write,
            session.appending(run.seconds) as note,
        ):

            def store(grown: TimedTree) -> bool:
                sampled.add(grown.tree)
                if not _is_kept(grown.tree, plan.settings):
                    return False
                # The seconds are written first, so that a kill leaves no tree without
                # them.
                note(grown.seconds)
                session.keep_pictures(grown.pictures)
                write(grown.tree)
                return True

            title = f"demonstrations ({plan.settings.demos.policy})"
            together = plan.settings.rollout.concurrency
            standing = Standing(title, total, written.trees, written.success, together)
            episodes = _episodes(plan, grower, written.tried)
            done = await harvest(session.progress, standing, episodes, store)
        seconds = grower.seconds()
        retries = grower.retries
    for line in sampled.warnings(plan.settings):
        session.progress.note(line)
    tried = written.tried + sampled.counts["trees"]
    if done < total:
        raise _too_few(plan, done, tried)
    tally = tally_of(run.trees)
    record = session.finish(
        latest=True,
        panel=plan.panel.sha256,
        panel_name=plan.panel.name,
        counts=tally.counts,
        ledger=tally.ledger,
        statistics={"episodes_tried": tried, **retried(session, retries)},
        seconds=seconds,
    )
    tally.judge_errors(plan.settings, run.path, session.progress.note)
    return record


def _too_few(plan: DemosPlan, done: int, tried: int) -> AgentCliError:
    """The error for a policy that hardly ever succeeds."""
    return AgentCliError(
        f"{plan.settings.demos.policy} succeeded in {done} of {tried} episodes; keep "
        "failures too with --set demos.keep=all, or choose another --policy"
    )


async def _play_again(plan: DemosPlan, grower: Grower, session: Session) -> None:
    """Plays the errored episodes again, and puts those that are kept in their place."""
    file = plan.run.trees
    jobs = []
    for tree in read_records(file, Tree):
        if not is_complete(tree):
            jobs.append(Seedling(tree.task, tree.seed))
    played: dict[tuple[str, int], Tree] = {}
    async for grown in grow(grower, jobs, plan.settings.rollout.concurrency):
        session.keep_pictures(grown.pictures)
        played[grown.tree.task.id, grown.tree.seed] = grown.tree
    with rewriting(file) as writer:
        for tree in read_records(file, Tree):
            tree = played.get((tree.task.id, tree.seed), tree)
            if _is_kept(tree, plan.settings):
                writer.write(tree)


async def _episodes(
    plan: DemosPlan,
    grower: Grower,
    tried: int,
) -> AsyncGenerator[TimedTree, None]:
    """Plays the panel lap after lap until it has to give up.

    The first `tried` episodes were played before.
    """
    tasks = len(plan.panel.tasks)
    patience = _patience(plan)
    while True:
        lap, place = divmod(tried, tasks)
        seed, order = _lap(plan, lap)
        jobs = [Seedling(task, seed) for task in order[place:]]
        # A lap ends before the next one begins: a task that was always in flight would
        # never release its engines.
        lap_trees = grow(grower, jobs, plan.settings.rollout.concurrency)
        async with aclosing(lap_trees):
            async for grown in lap_trees:
                yield grown
                tried += 1
                if tried > patience:
                    return


def _patience(plan: DemosPlan) -> int:
    """The number of episodes after which the stage gives up."""
    tasks = len(plan.panel.tasks)
    return PATIENCE * (plan.settings.demos.count + tasks)


def _lap(plan: DemosPlan, lap: int) -> tuple[int, list[Task]]:
    """The seed of one lap, and its order of the tasks."""
    tasks = plan.panel.tasks
    seed = derive_seed(plan.seed, "demos", lap)
    return seed, iteration_tasks(tasks, len(tasks), 0, seed)


class DemosWritten(NamedTuple):
    """The content of an interrupted file of demonstrations."""

    trees: int = 0
    success: float | None = None
    """Share of them that succeeded."""
    tried: int = 0
    """Number of episodes played up to the last one written."""
    errored: int = 0
    """Trees of errored episodes."""


def _written(plan: DemosPlan) -> DemosWritten:
    """Reads an interrupted file.

    Raises DataError if its last tree does not belong to this panel.
    """
    path = plan.run.trees
    successes = []
    errored = 0
    last = None
    for tree in read_records(path, Tree):
        successes.append(share_of_success(tree))
        errored += not is_complete(tree)
        last = tree
    if last is None:
        return DemosWritten()
    tried = _episodes_up_to(last, plan)
    if tried is None:
        raise DataError(
            f"{path}: its last tree ({last.task.id}) is not one of this panel's; write "
            "anew with --overwrite"
        )
    trees = len(successes)
    return DemosWritten(trees, sum(successes) / trees, tried, errored)


def _episodes_up_to(last: Tree, plan: DemosPlan) -> int | None:
    """The number of episodes played up to `last`; None if it is not from this panel."""
    for lap in range(_patience(plan) + 1):
        seed, order = _lap(plan, lap)
        if seed != last.seed:
            continue
        for place, task in enumerate(order, 1):
            if task.id == last.task.id:
                return lap * len(order) + place
    return None


def _is_kept(tree: Tree, settings: Settings) -> bool:
    """Whether an episode is written. An errored one is: its outcome is still open."""
    if settings.demos.keep == "all":
        return True
    return tree.steps[-1].outcome in (Outcome.SUCCESS, Outcome.ERRORED)
