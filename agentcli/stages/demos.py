"""demos: trajectories of an expert, or of any policy, as trees with one leaf each;
`sft` learns from them.

The panel is walked in a seeded order, again and again until `demos.count` are written:
more demonstrations than tasks means other trajectories of the same tasks. Habits and
noise on purpose are in the `demos` settings; steps that must not be imitated carry
`mask`.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.errors import AgentCliError, DataError
from agentcli.exploration.settings import as_method, own_fields
from agentcli.records.files import derive_seed, read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import RolloutSettings, Settings
from agentcli.records.types import Outcome, StageRecord, Task, Tree
from agentcli.stages.harvest import (
    Grower,
    Seedling,
    Standing,
    TimedTree,
    grow,
    harvest,
    local_grower,
)
from agentcli.stages.panels import iteration_tasks, panel_for
from agentcli.stages.sampling import (
    SamplingPlan,
    check_policy,
    check_sampling,
    refuse_shard,
    sampling_inputs,
    sampling_sources,
)
from agentcli.stages.session import Invocation, Session, carry_out
from agentcli.stages.tally import NOT_KEPT, Tally, share_of_success, tally_of

PATIENCE = 20
"""Episodes tried per demonstration kept before giving up."""


@dataclass(frozen=True, kw_only=True)
class DemosPlan(SamplingPlan):
    """Demonstrations that may be played."""

    def counts(self) -> dict[str, int]:
        return {
            "tasks": len(self.panel.tasks),
            "demonstrations": self.settings.demos.count,
        }


def plan(settings: Settings, out: Path, *, model: str | None) -> DemosPlan:
    """`demos.count` trajectories into `out`. Raises what `check_sampling` raises."""
    name = settings.policy.model if settings.demos.policy == "openai" else model
    settings = msgspec.structs.replace(
        settings,
        policy=msgspec.structs.replace(
            settings.policy, kind="demonstrator", model=name
        ),
        rollout=as_method(settings.rollout, settings.rollout.alone, leaves=1),
    )
    refuse_shard(settings, "demos")
    world = check_sampling(settings, model)
    check_policy(settings, settings.demos.policy, world)
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
    """What of the rollout's settings an episode depends on."""
    own = {
        field.name: getattr(rollout, field.name) for field in own_fields(rollout.method)
    }
    return {
        "method": rollout.method,
        "overlong": rollout.overlong,
        **msgspec.to_builtins(own),
    }


def demos(
    settings: Settings, out: Path, invocation: Invocation, *, model: str | None
) -> StageRecord:
    """Plan and perform."""
    return carry_out(plan(settings, out, model=model), perform, invocation)


def perform(plan: DemosPlan, session: Session) -> StageRecord:
    """Write trees.jsonl and seconds.jsonl.

    Raises AgentCliError when the policy hardly ever succeeds and only successes are
    kept.
    """
    return asyncio.run(_play(plan, session))


async def _play(plan: DemosPlan, session: Session) -> StageRecord:
    run = plan.run
    total = plan.settings.demos.count
    resumed = session.resumed and run.trees.exists()
    if resumed and session.done and tally_of(run.trees).counts["trees"] == total:
        return session.nothing_owed(session.done)
    written = _written(plan) if resumed else DemosWritten()
    sampled = Tally()
    async with local_grower(plan) as grower:
        with (
            session.appending(run.trees) as write,
            session.appending(run.seconds) as note,
        ):

            def store(grown: TimedTree) -> bool:
                sampled.add(grown.tree)
                if not _is_kept(grown.tree, plan.settings):
                    return False
                write(grown.tree)
                note(grown.seconds)
                return True

            title = f"demonstrations ({plan.settings.demos.policy})"
            standing = Standing(title, total, written.trees, written.success)
            done = await harvest(
                session.progress,
                standing,
                _episodes(plan, grower, written.tried),
                store,
            )
        seconds = grower.seconds()
    for line in sampled.warnings(plan.settings, NOT_KEPT):
        session.progress.note(line)
    tried = written.tried + sampled.counts["trees"]
    if done < total:
        raise AgentCliError(
            f"{plan.settings.demos.policy} succeeded in {done} of {tried} episodes; "
            "keep failures too with --set demos.keep=all, or choose another --policy"
        )
    tally = tally_of(run.trees)
    return session.finish(
        latest=True,
        panel=plan.panel.sha256,
        panel_name=plan.panel.name,
        counts=tally.counts,
        ledger=tally.ledger,
        statistics={"episodes_tried": tried},
        seconds=seconds,
    )


async def _episodes(
    plan: DemosPlan, grower: Grower, tried: int
) -> AsyncGenerator[TimedTree, None]:
    """Episodes lap after lap over the panel, from the one after the first `tried`,
    until patience ends.

    A lap ends before the next begins: a task that was always in flight would never give
    up its engines.
    """
    tasks = len(plan.panel.tasks)
    patience = PATIENCE * (plan.settings.demos.count + tasks)
    while True:
        lap, place = divmod(tried, tasks)
        seed, order = _lap(plan, lap)
        jobs = [Seedling(task, seed) for task in order[place:]]
        async with aclosing(
            grow(grower, jobs, plan.settings.rollout.concurrency)
        ) as trees:
            async for grown in trees:
                yield grown
                tried += 1
                if tried > patience:
                    return


def _lap(plan: DemosPlan, lap: int) -> tuple[int, list[Task]]:
    """One lap's seed and its order of the tasks."""
    tasks = plan.panel.tasks
    seed = derive_seed(plan.seed, "demos", lap)
    return seed, iteration_tasks(tasks, len(tasks), 0, seed)


class DemosWritten(NamedTuple):
    """What an interrupted file of demonstrations holds."""

    trees: int = 0
    success: float | None = None
    """Share of them that succeeded."""
    tried: int = 0
    """Episodes up to the last one written."""


def _written(plan: DemosPlan) -> DemosWritten:
    """Read an interrupted file. Raises DataError where its last tree is none of this
    panel's.
    """
    path = plan.run.trees
    trees = 0
    won = 0.0
    last = None
    for tree in read_records(path, Tree):
        trees += 1
        won += share_of_success(tree)
        last = tree
    if last is None:
        return DemosWritten()
    tasks = plan.panel.tasks
    for lap in range(PATIENCE * (plan.settings.demos.count + len(tasks)) + 1):
        seed, order = _lap(plan, lap)
        if seed == last.seed:
            places = {task.id: place for place, task in enumerate(order)}
            if last.task.id in places:
                return DemosWritten(
                    trees, won / trees, lap * len(tasks) + places[last.task.id] + 1
                )
    raise DataError(
        f"{path}: its last tree ({last.task.id}) is none of this panel's; write anew "
        "with --overwrite"
    )


def _is_kept(tree: Tree, settings: Settings) -> bool:
    outcome = tree.steps[-1].outcome
    return outcome is Outcome.SUCCESS or (
        settings.demos.keep == "all" and outcome is not Outcome.ERRORED
    )
