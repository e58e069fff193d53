"""rollout: grow one tree per task of the panel and append it to trees.jsonl, in the
panel's order; seconds.jsonl says how long each took.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agentcli.environments.protocol import World
from agentcli.exploration.budget import highest
from agentcli.records.files import derive_seed, read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.types import Outcome, Panel, StageRecord, Tree
from agentcli.stages.harvest import TimedTree
from agentcli.stages.panels import iteration_tasks, make_panel, panel_for
from agentcli.stages.plan import with_model
from agentcli.stages.sampling import (
    SECTIONS,
    Workshop,
    check_sampling,
    sampling_inputs,
    sampling_sources,
)
from agentcli.stages.session import Invocation, Session, carry_out, rewriting
from agentcli.stages.tally import RESUMABLE, UNTRAINED, share_of_success, tally_of
from agentcli.stages.walk import Kept, PanelWalk, WalkPlan, part_to_walk, walk


@dataclass(frozen=True, kw_only=True)
class RolloutPlan(WalkPlan):
    """A rollout that may begin."""

    def counts(self) -> dict[str, int]:
        tasks = len(self.panel.tasks)
        most = {
            f"{unit}_at_most": tasks * highest(unit, self.settings)
            for unit in ("leaves", "steps")
        }
        return {"tasks": tasks, **most}


def plan(
    settings: Settings, out: Path, *, model: str | None, world: World | None = None
) -> RolloutPlan:
    """A rollout into `out`, of tasks of `world` where it is made already.

    Raises what `check_sampling` raises, and UsageError and DataError for a panel that
    cannot be walked.
    """
    world = check_sampling(settings, model, world)
    whole, seed = tasks_of(settings, world)
    run = RunDirectory(out)
    return RolloutPlan(
        stage="rollout",
        run=run,
        settings=with_model(settings, model),
        sections=SECTIONS,
        inputs=sampling_inputs(settings, model),
        sources=sampling_sources(settings, model),
        outputs=[run.trees, run.seconds],
        world=world,
        model=model,
        panel=part_to_walk(settings, whole),
        whole=whole,
        seed=seed,
    )


def rollout(
    settings: Settings, out: Path, invocation: Invocation, *, model: str | None
) -> StageRecord:
    """Plan and perform."""
    return carry_out(plan(settings, out, model=model), perform, invocation)


def perform(plan: RolloutPlan, session: Session) -> StageRecord:
    """Write trees.jsonl and seconds.jsonl."""
    return asyncio.run(grow_trees(plan, session))


async def grow_trees(
    plan: RolloutPlan,
    session: Session,
    workshop: Workshop | None = None,
    warn: Callable[[str], None] | None = None,
) -> StageRecord:
    """`perform`, for a loop that has an event loop and engines of its own.

    `warn` makes it a part of such a loop, which trains on what did not error; without
    it, runs/latest names this run.
    """
    run = plan.run
    title = f"rollout {plan.settings.rollout.method}"
    walked = await walk(
        plan, session, TreeFile(run), title, ended=session.done, workshop=workshop
    )
    if isinstance(walked, StageRecord):
        return session.nothing_owed(walked)
    return conclude(session, walked, warn)


def conclude(
    session: Session, walked: PanelWalk, warn: Callable[[str], None] | None = None
) -> StageRecord:
    """Count the trees, say what is wrong with them, and write the manifest entry."""
    tally = tally_of(session.run.trees)
    for line in tally.warnings(session.settings, UNTRAINED if warn else RESUMABLE):
        session.progress.note(line)
        if warn:
            warn(line)
    return session.finish(
        latest=warn is None,
        panel=walked.panel.sha256,
        panel_name=walked.panel.name,
        counts=tally.counts,
        ledger=tally.ledger,
        statistics={**tally.statistics(), **walked.extent, **tally.temperatures},
        seconds=walked.seconds,
    )


def tasks_of(settings: Settings, world: World) -> tuple[Panel, int]:
    """The tasks to roll and the sampling seed: the whole panel, or the slice of one
    iteration.
    """
    panel = panel_for(world, settings.environment)
    iteration = settings.rollout.iteration
    if iteration is None:
        return panel, settings.seed
    tasks = iteration_tasks(
        panel.tasks, settings.rollout.tasks_per_step, iteration, settings.seed
    )
    name = f"{panel.name}/iteration {iteration}"
    return make_panel(name, panel.world, tasks), derive_seed(
        settings.seed, "iteration", iteration
    )


class TreeFile:
    """trees.jsonl with seconds.jsonl beside it, as `walk` writes them."""

    def __init__(self, run: RunDirectory) -> None:
        self.path = run.trees
        self._seconds = run.seconds

    def complete(self) -> dict[str, Kept]:
        """Tasks whose tree has no errored leaf, and what the trees cost and came to."""
        trees = (tree for tree in read_records(self.path, Tree) if is_complete(tree))
        return {
            tree.task.id: Kept(tree.ledger, share_of_success(tree)) for tree in trees
        }

    def keep_only(self, tasks: Collection[str]) -> None:
        """Drop errored trees, a second tree of a task and a torn last line."""
        written: set[str] = set()
        with rewriting(self.path) as writer:
            for tree in read_records(self.path, Tree):
                if (
                    tree.task.id in tasks
                    and tree.task.id not in written
                    and is_complete(tree)
                ):
                    written.add(tree.task.id)
                    writer.write(tree)

    @contextmanager
    def appending(self, session: Session) -> Iterator[Callable[[TimedTree], None]]:
        """A function that appends a tree and its seconds."""
        with (
            session.appending(self.path) as write,
            session.appending(self._seconds) as note,
        ):

            def store(grown: TimedTree) -> None:
                write(grown.tree)
                note(grown.seconds)

            yield store


def is_complete(tree: Tree) -> bool:
    """No leaf of it errored: nothing is owed for this task."""
    return all(step.outcome is not Outcome.ERRORED for step in tree.steps)
