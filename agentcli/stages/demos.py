"""demos: trajectories of an expert, or of any policy, for `sft` to learn from.

Each is a tree with one leaf. The panel is played in a seeded order, repeatedly, until
`demos.count` are written: with more demonstrations than tasks, a task gets several
trajectories. The `demos` settings define deliberate habits and noise; steps that must
not be imitated have a `mask`.

An errored episode keeps its place in the file, so that the others are the same as in a
run without errors. --resume plays it again, and drops it if it would not have been
kept.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.errors import AgentCliError, DataError
from agentcli.exploration.settings import added_fields, as_method
from agentcli.policies.demonstrator import refuse_habits
from agentcli.records.faults import shown
from agentcli.records.files import derive_seed, read_records
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import RolloutSettings, Settings
from agentcli.records.types import Outcome, StageRecord, Tree
from agentcli.reports.standing import Standing
from agentcli.stages import sampling
from agentcli.stages.backend import TimedTree, TreeJob, TreeSampler, grow, harvest
from agentcli.stages.cluster import open_sampler
from agentcli.stages.panels import iteration_tasks, panel_for
from agentcli.stages.plan import with_changes
from agentcli.stages.rollout import TreeFile, is_complete, retried
from agentcli.stages.session import Session
from agentcli.stages.tally import Tally, counted, share_of_success
from agentcli.stages.trees import episode_of

PATIENCE = 20
"""The stage gives up after this many episodes per demonstration wanted and per task of
the panel, of which COUNTED_TASKS count.
"""
COUNTED_TASKS = 20
"""A split may have thousands of tasks, and each episode asks the policy."""


class DemosWritten(NamedTuple):
    """The content of an interrupted file of demonstrations."""

    successes: list[float]
    """Of each demonstration that did not error."""
    errored: list[TreeJob]
    """To be played again."""
    tried: int
    """Number of episodes played up to the last one written."""


@dataclass(frozen=True, kw_only=True)
class DemosPlan(sampling.SamplingPlan):
    """Demonstrations that are ready to be played."""

    def counts(self) -> dict[str, int]:
        """The number of tasks in the panel, of demonstrations and of episodes."""
        count = self.settings.demos.count
        keeps_all = self.settings.demos.keep == "all"
        return {
            "tasks": len(self.panel.tasks),
            "demonstrations": count,
            "episodes_at_most": count if keeps_all else self.limit,
        }

    @property
    def limit(self) -> int:
        """The number of episodes after which the stage gives up."""
        tasks = min(len(self.panel.tasks), COUNTED_TASKS)
        return PATIENCE * (self.settings.demos.count + tasks)


def plan(settings: Settings, out: Path, *, model: str | None) -> DemosPlan:
    """Plans `demos.count` trajectories for `out`; raises what `check_sampling` does."""
    served = settings.demos.policy == "openai"
    name = settings.policy.model if served else model
    settings = with_changes(settings, policy={"kind": "demonstrator", "model": name})
    rollout = as_method(settings.rollout, settings.rollout.alone, leaves=1)
    settings = msgspec.structs.replace(settings, rollout=rollout)
    sampling.refuse_shard(settings, "demos")
    world = sampling.check_sampling(settings, model)
    sampling.check_policy(settings, settings.demos.policy)
    if settings.demos.policy != "search":
        refuse_habits(settings.demos)
    run = RunDirectory(out)
    return DemosPlan(
        stage="demos",
        run=run,
        settings=settings,
        sections=("environment", "policy", "prompt", "demos"),
        conditions={"rollout": _form(settings.rollout)},
        inputs=sampling.inputs_of(settings, model),
        sources=sampling.files_read(settings, model),
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
    settings = plan.settings
    total = settings.demos.count
    before = _written(plan) if session.resumed else DemosWritten([], [], 0)
    have = len(before.successes)
    if session.done and have == total and not before.errored:
        return session.nothing_owed(session.done)
    mean = sum(before.successes) / have if have else None
    title = f"demonstrations ({settings.demos.policy})"
    standing = Standing(title, total, have, mean, settings.rollout.concurrency)
    trees = TreeFile(run.trees, run.seconds)
    sampled = Tally()
    dropped = set[tuple[int, str]]()
    async with open_sampler(plan, session.progress) as sampler:
        with trees.appending(session) as write:

            def store(grown: TimedTree) -> bool:
                # Before anything is dropped: the warnings are about all that the policy
                # answered.
                sampled.add(grown.tree)
                if _is_kept(grown.tree, settings):
                    return write(grown)
                dropped.add(_key(grown.tree))
                return False

            episodes = _episodes(plan, sampler, before)
            done = await harvest(session.progress, standing, episodes, store)
        seconds = sampler.seconds()
        retries = sampler.retries
    for line in sampled.warnings(settings):
        session.progress.note(line)
    # An episode that is played again was counted when it was tried first.
    tried = before.tried + sampled.counts["trees"] - len(before.errored)
    if done < total:
        raise _too_few(plan, done, tried)
    if session.resumed:
        session.start()
        keys = map(_key, islice(_jobs(plan), tried))
        trees.put_in_order([key for key in keys if key not in dropped], episode_of)
    tally, _ = counted(run.trees)
    record = session.finish(
        latest=True,
        panel=plan.panel.sha256,
        panel_name=plan.panel.name,
        counts=tally.counts,
        ledger=tally.ledger,
        statistics={"episodes_tried": tried, **retried(session, retries)},
        seconds=seconds,
    )
    tally.judge_errors(settings, run.path, session.progress.note)
    return record


def _too_few(plan: DemosPlan, done: int, tried: int) -> AgentCliError:
    """The error for a policy that hardly ever succeeds."""
    return AgentCliError(
        f"{plan.settings.demos.policy} succeeded in {done} of {tried} episodes; keep "
        "failures too with --set demos.keep=all, or choose another --policy"
    )


def _jobs(plan: DemosPlan) -> Iterator[TreeJob]:
    """All episodes in order: the panel lap after lap, until the stage gives up."""
    tasks = plan.panel.tasks
    for number in range(plan.limit):
        lap, place = divmod(number, len(tasks))
        if place == 0:
            # Another one in each lap, or a task would be played the same way again.
            seed = derive_seed(plan.seed, "demos", lap)
            order = iteration_tasks(tasks, len(tasks), 0, seed)
        yield TreeJob(order[place], seed)


async def _episodes(
    plan: DemosPlan, sampler: TreeSampler, before: DemosWritten
) -> AsyncGenerator[TimedTree, None]:
    """Plays what errored before, then what was not played before."""
    fresh = islice(_jobs(plan), before.tried, None)
    laps = groupby(fresh, key=lambda job: job.seed)
    # A lap ends before the next one begins: a task that was always in flight would
    # never release its engines.
    for jobs in chain([before.errored], (lap for _, lap in laps)):
        lap_trees = grow(sampler, jobs, plan.settings.rollout.concurrency)
        async with aclosing(lap_trees):
            async for grown in lap_trees:
                yield grown


def _written(plan: DemosPlan) -> DemosWritten:
    """Reads an interrupted file.

    Raises DataError for a tree of another panel.
    """
    path = plan.run.trees
    successes: dict[tuple[int, str], float | None] = {}
    """None for an episode that errored."""
    if is_there(path):
        for tree in read_records(path, Tree):
            success = share_of_success(tree) if is_complete(tree) else None
            successes[_key(tree)] = success
    ahead = set(successes)
    jobs = _jobs(plan)
    errored = []
    tried = 0
    while ahead:
        job = next(jobs, None)
        if job is None:
            raise DataError(
                f"{path}: the tree of {shown(ahead.pop()[1])} is not one of this "
                "panel's; write anew with --overwrite"
            )
        tried += 1
        # An episode that was played and is not in the file was dropped: 0 stands for
        # it.
        if successes.get(_key(job), 0) is None:
            errored.append(job)
        ahead.discard(_key(job))
    finished = [success for success in successes.values() if success is not None]
    return DemosWritten(finished, errored, tried)


def _key(episode: TreeJob | Tree) -> tuple[int, str]:
    """The seed of a lap, and a task of it."""
    return episode.seed, episode.task.id


def _is_kept(tree: Tree, settings: Settings) -> bool:
    """Whether an episode is written. An errored one is: its outcome is still open."""
    if settings.demos.keep == "all":
        return True
    return tree.steps[-1].outcome in (Outcome.SUCCESS, Outcome.ERRORED)
