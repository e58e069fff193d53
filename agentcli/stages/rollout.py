"""rollout: grow one tree per task of the panel and append it to trees.jsonl, in the panel's order.

A killed rollout resumes: trees that are complete and free of errored leaves are kept, the rest is owed. When it ends the
file is in panel order again, so an interrupted and an undisturbed rollout leave the same bytes.
"""

import asyncio
from contextlib import aclosing
from pathlib import Path

import msgspec

from agentcli.exploration.registry import make
from agentcli.records.files import derive_seed, read_records
from agentcli.records.runs import RunDirectory, link_latest
from agentcli.records.settings import Settings
from agentcli.records.types import Ledger, Outcome, Panel, StageRecord, Task, Tree
from agentcli.stages.panels import iteration_tasks, make_panel, panel_for
from agentcli.stages.resources import Engines, Stopwatch, grow, open_engines, open_policy
from agentcli.stages.session import Invocation, Session, rewriting

SECTIONS = ("environment", "policy", "prompt", "rollout")


def rollout(settings: Settings, out: Path, invocation: Invocation, *, model: str | None) -> StageRecord:
    """Write `out`/trees.jsonl. Raises UsageError for existing output without a flag, and what the world, policy and
    method refuse."""

    async def work() -> StageRecord:
        async with open_engines(settings) as engines:
            return await roll(settings, out, invocation, engines, model=model)

    record = asyncio.run(work())
    link_latest(out)
    return record


async def roll(
    settings: Settings, out: Path, invocation: Invocation, engines: Engines, *, model: str | None
) -> StageRecord:
    """One rollout with engines that are already open (as the iterations of `run` share them)."""
    settings = with_model(settings, model)
    explore = make(settings.rollout.method)
    panel, seed = plan(settings, engines)
    run = RunDirectory(out)
    session = Session("rollout", run, settings, invocation, SECTIONS)
    resumed = session.check([run.trees], resumable=True)
    kept = keep_complete(run.trees) if resumed else set()
    owed = [task for task in panel.tasks if task.id not in kept]
    tally, progress = Tally(), invocation.progress
    progress.start(f"rollout {settings.rollout.method}", len(panel.tasks), done=len(kept))
    seconds: dict[str, float] = {}
    if owed:
        async with open_policy(settings, engines, model) as policy:
            watch = Stopwatch(engines, policy)
            with session.appending(run.trees) as write:
                async with aclosing(grow(explore, engines, policy, settings, owed, seed)) as trees:
                    async for tree in trees:
                        write(tree)
                        progress.advance(1, success=share_of_success(tree))
            seconds = watch.seconds()
    progress.stop()
    if kept and owed:
        restore_order(run.trees, panel.tasks)
    for tree in read_records(run.trees, Tree):
        tally.add(tree)
    return session.finish(
        inputs=[Path(model)] if model and Path(model).is_dir() else [],
        panel=panel.sha256,
        panel_name=panel.name,
        counts=tally.counts,
        ledger=tally.ledger,
        seconds=seconds,
    )


def with_model(settings: Settings, model: str | None) -> Settings:
    """Settings that name the model in use, for the manifest."""
    return msgspec.structs.replace(settings, policy=msgspec.structs.replace(settings.policy, model=model))


def plan(settings: Settings, engines: Engines) -> tuple[Panel, int]:
    """The tasks to roll and the sampling seed: the whole panel, or the slice of one iteration."""
    panel = panel_for(engines.world, settings.environment)
    iteration = settings.rollout.iteration
    if iteration is None:
        return panel, settings.seed
    tasks = iteration_tasks(panel.tasks, settings.rollout.tasks_per_step, iteration, settings.seed)
    name = f"{panel.name}/iteration {iteration}"
    return make_panel(name, panel.world, tasks), derive_seed(settings.seed, "iteration", iteration)


class Tally:
    """Counts and ledger over trees."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"trees": 0, "leaves": 0, **{outcome.value: 0 for outcome in Outcome}}
        self.ledger = Ledger()

    def add(self, tree: Tree) -> None:
        """Count one tree."""
        self.counts["trees"] += 1
        for step in tree.steps:
            if step.outcome is not None:
                self.counts["leaves"] += 1
                self.counts[step.outcome.value] += 1
        self.ledger += tree.ledger


def share_of_success(tree: Tree) -> float:
    """Successful leaves over leaves."""
    outcomes = [step.outcome for step in tree.steps if step.outcome is not None]
    return sum(outcome is Outcome.SUCCESS for outcome in outcomes) / max(1, len(outcomes))


def is_complete(tree: Tree) -> bool:
    """No leaf of it errored: nothing is owed for this task."""
    return all(step.outcome is not Outcome.ERRORED for step in tree.steps)


def keep_complete(path: Path) -> set[str]:
    """Rewrite a trees file without errored trees and without a torn last line; the ids of the tasks that stay."""
    kept: set[str] = set()
    with rewriting(path) as writer:
        for tree in read_records(path, Tree):
            if is_complete(tree) and tree.task.id not in kept:
                kept.add(tree.task.id)
                writer.write(tree)
    return kept


def restore_order(path: Path, tasks: list[Task]) -> None:
    """Sort a trees file into the panel's order without holding it in memory."""
    places: dict[str, int] = {}
    decoder = msgspec.json.Decoder(_Head)
    with open(path, "rb") as file:
        offset = 0
        for line in file:
            places[decoder.decode(line).task.id] = offset
            offset += len(line)
        part = path.with_name(path.name + ".part")
        with open(part, "wb") as sorted_file:
            for task in tasks:
                file.seek(places[task.id])
                sorted_file.write(file.readline())
    part.replace(path)


class _Head(msgspec.Struct):
    """The part of a tree record that sorting needs."""

    task: Task
