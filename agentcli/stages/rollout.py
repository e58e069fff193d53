"""rollout: grow one tree per task of the panel and append it to trees.jsonl, in the panel's order; seconds.jsonl says how long
each took.

A killed rollout resumes: trees that are complete and free of errored leaves are kept, the rest is owed. When it ends the
file is in panel order again, so an interrupted and an undisturbed rollout leave the same bytes. With `rollout.budget` it ends
when the trees have cost that (exploration/budget.py); the manifest then names the part of the panel that was walked.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentcli.errors import DataError
from agentcli.exploration.budget import Allowance, parse_budget
from agentcli.exploration.registry import make
from agentcli.records.faults import shown
from agentcli.records.files import derive_seed, read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.types import Ledger, Outcome, Panel, StageRecord, Task, Tree, TreeSeconds
from agentcli.stages.panels import iteration_tasks, make_panel, panel_for
from agentcli.stages.progress import Progress
from agentcli.stages.resources import Engines, Stopwatch, grow, open_engines, open_policy
from agentcli.stages.session import Invocation, Session, rewriting
from agentcli.stages.tally import RESUMABLE, UNTRAINED, share_of_success, tally_of

SECTIONS = ("environment", "policy", "prompt", "rollout")


def rollout(settings: Settings, out: Path, invocation: Invocation, *, model: str | None) -> StageRecord:
    """Write `out`/trees.jsonl. Raises UsageError for existing output without a flag, and what the world, policy and
    method refuse."""

    async def work() -> StageRecord:
        async with open_engines(settings) as engines:
            return await roll(settings, out, invocation, engines, model=model)

    return asyncio.run(work())


async def roll(
    settings: Settings,
    out: Path,
    invocation: Invocation,
    engines: Engines,
    *,
    model: str | None,
    warn: Callable[[str], None] | None = None,
) -> StageRecord:
    """One rollout with engines that are already open (as the iterations of `run` share them). `warn`: a loop that it is part of,
    which goes on to train on what did not error; without one it is a command of its own, which runs/latest names."""
    settings = with_model(settings, model)
    explore, budget = make(settings.rollout.method), parse_budget(settings.rollout.budget)
    panel, seed = plan(settings, engines)
    run = RunDirectory(out)
    with Session("rollout", run, settings, invocation, SECTIONS, inputs=sampling_inputs(settings, model)) as session:
        resumed = session.check([run.trees, run.seconds]) and run.trees.exists()
        kept = complete_tasks(run.trees) if resumed else {}
        refuse_other_tasks(run.trees, kept, panel)
        allowance = Allowance(budget, panel.tasks, settings, {task: tree.ledger for task, tree in kept.items()})
        owed = [task for task in allowance.paid(panel.tasks) if task.id not in kept]
        if session.done and not owed:
            return session.nothing_owed(session.done)
        if resumed:
            drop_incomplete(run.trees)
        progress = session.progress
        progress.start(f"rollout {settings.rollout.method}", len(panel.tasks), len(kept), mean_success(kept.values()))
        seconds: dict[str, float] = {}
        if owed:
            async with open_policy(settings, engines, model) as policy:
                watch = Stopwatch(engines, policy)
                timed: dict[str, TreeSeconds] = {}
                with session.appending(run.trees) as write, session.appending(run.seconds) as note:
                    growing = grow(explore, engines, policy, settings, owed, seed, allowance, timed)
                    async with aclosing(growing) as trees:
                        async for tree in trees:
                            write(tree)
                            note(timed.pop(tree.task.id))
                            progress.advance(1, success=share_of_success(tree))
                seconds = watch.seconds()
        progress.stop()
        walked = walked_part(panel, allowance, progress)
        if kept:
            restore_order(run.trees, walked.tasks)
        tally = tally_of(run.trees)
        for line in tally.warnings(settings, UNTRAINED if warn else RESUMABLE):
            progress.note(line)
            if warn:
                warn(line)
        return session.finish(
            latest=warn is None,
            panel=walked.sha256,
            panel_name=walked.name,
            counts=tally.counts,
            ledger=tally.ledger,
            statistics={**tally.statistics(), **allowance.report(walked.tasks), **tally.temperatures},
            seconds=seconds,
        )


def refuse_other_tasks(path: Path, kept: Iterable[str], panel: Panel) -> None:
    """Raises DataError for the first task among `kept`, found in `path`, that is none of the panel's."""
    own = {task.id for task in panel.tasks}
    other = next((task for task in kept if task not in own), None)
    if other is not None:
        raise DataError(
            f"{path}: task {shown(other)} is none of panel {panel.name}'s; go on with the panel that this was written with, or use "
            "--overwrite"
        )


def walked_part(panel: Panel, allowance: Allowance, progress: Progress) -> Panel:
    """The panel, cut where the budget ended. Notes when the budget outlasts it."""
    tasks = allowance.paid(panel.tasks)
    remainder = allowance.remainder(tasks)
    if remainder:
        progress.note(remainder)
    if len(tasks) == len(panel.tasks):
        return panel
    return make_panel(f"{panel.name}/first {len(tasks)}", panel.world, tasks)


def with_model(settings: Settings, model: str | None) -> Settings:
    """Settings that name the model in use, for the manifest; the name of a served model (openai) is a setting already."""
    if settings.policy.kind == "openai":
        return settings
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


def single(method: str) -> str:
    """How one trajectory of the policy that `method` trains is sampled: parallel copies are its form, forks are not."""
    return "dpepo" if method == "dpepo" else "chain"


def model_inputs(model: str | None) -> list[Path]:
    """The model's directory; nothing for a hub id or a policy without a model."""
    return [Path(model)] if model is not None and Path(model).is_dir() else []


def sampling_inputs(settings: Settings, model: str | None) -> list[Path]:
    """What sampling reads: the model's directory and the panel file, those that there are."""
    panel = settings.environment.panel
    return [*model_inputs(model), *([Path(panel)] if panel is not None else [])]


def is_complete(tree: Tree) -> bool:
    """No leaf of it errored: nothing is owed for this task."""
    return all(step.outcome is not Outcome.ERRORED for step in tree.steps)


class Kept(NamedTuple):
    """What is remembered of a tree that need not be grown again."""

    ledger: Ledger
    success: float
    """Share of its leaves."""


def complete_tasks(path: Path) -> dict[str, Kept]:
    """The tasks for which nothing is owed, and what their trees cost and came to."""
    complete = (tree for tree in read_records(path, Tree) if is_complete(tree))
    return {tree.task.id: Kept(tree.ledger, share_of_success(tree)) for tree in complete}


def mean_success(kept: Collection[Kept]) -> float | None:
    """Mean share of success; None without a tree."""
    return sum(tree.success for tree in kept) / len(kept) if kept else None


def drop_incomplete(path: Path) -> None:
    """Rewrite a trees file without errored trees, without a second tree of a task and without a torn last line."""
    kept: set[str] = set()
    with rewriting(path) as writer:
        for tree in read_records(path, Tree):
            if is_complete(tree) and tree.task.id not in kept:
                kept.add(tree.task.id)
                writer.write(tree)


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
