"""run: the loop rollout -> assign-credit -> train, with one folder per iteration.

Each iteration calls the very stages that the separate commands call, on the same files,
so both ways leave the same trees, credit and checkpoints; only the engine processes
stay alive in between, and the policy where it can take other weights. A killed loop
resumes at the stage that has no manifest entry yet.
"""

import asyncio
import os
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agentcli.credit.registry import known
from agentcli.credit.registry import make as make_credit
from agentcli.environments.engines.pool import EnginePool
from agentcli.errors import UsageError
from agentcli.exploration.roots import RootedRollout
from agentcli.exploration.settings import methods_with
from agentcli.policies.load import load_tokenizer
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.types import StageRecord
from agentcli.stages.credit import perform as perform_credit
from agentcli.stages.credit import plan as plan_credit
from agentcli.stages.panels import iteration_tasks, panel_for
from agentcli.stages.plan import with_changes
from agentcli.stages.rollout import grow_trees
from agentcli.stages.rollout import plan as plan_rollout
from agentcli.stages.sampling import (
    SECTIONS,
    SamplingPlan,
    Workshop,
    check_sampling,
    refuse_shard,
    sampling_inputs,
    sampling_sources,
)
from agentcli.stages.session import Invocation, Session, carry_out
from agentcli.stages.train import perform as perform_train
from agentcli.stages.train import plan as plan_train
from agentcli.stages.train import (
    refuse_adapter_beside_model,
    refuse_greedy,
    with_aggregate,
)
from agentcli.training.objectives import make_objective


@dataclass(frozen=True, kw_only=True)
class LoopPlan(SamplingPlan):
    """A loop that may begin."""

    model: str
    tasks: int
    """Tasks of an iteration."""
    used: Settings
    """The settings with train.aggregate resolved."""

    def counts(self) -> dict[str, int]:
        """The iterations, their tasks and the most leaves that they can have."""
        iterations = self.settings.run.iterations
        return {
            "iterations": iterations,
            "panel_tasks": len(self.panel.tasks),
            "tasks_per_iteration": self.tasks,
            "leaves_at_most": iterations * self.tasks * self.settings.rollout.leaves,
        }


def plan(settings: Settings, out: Path, *, model: str | None) -> LoopPlan:
    """A loop of `run.iterations` below `out`; `out`/checkpoint names the last one's.

    Raises UsageError without a model that can be trained, and for settings that its
    rollouts or its training refuse.
    """
    if model is None or settings.policy.kind == "openai":
        raise UsageError(
            f"run trains a policy that it loads itself, not {settings.policy.kind}; "
            "name one with --model DIR|ID"
        )
    credit = credit_of(settings)
    refuse_adapter_beside_model(settings)
    refuse_greedy(settings)
    refuse_shard(settings, "run")
    world = check_sampling(settings, model)
    panel = panel_for(world, settings.environment)
    per_step = settings.rollout.tasks_per_step
    tasks = iteration_tasks(panel.tasks, per_step, 0, settings.seed)
    run = RunDirectory(out)
    folders = sorted({iteration_folder(out, 0), *out.glob("iteration_*")})
    return LoopPlan(
        stage="run",
        run=run,
        settings=settings,
        sections=(*SECTIONS, "credit", "train", "threads"),
        inputs=sampling_inputs(settings, model),
        sources=sampling_sources(settings, model),
        outputs=[*folders, run.checkpoint, run.tracking],
        world=world,
        model=model,
        panel=panel,
        seed=settings.seed,
        tasks=len(tasks),
        used=with_aggregate(settings, credit),
    )


def perform(plan: LoopPlan, session: Session) -> StageRecord:
    """Writes one run directory per iteration.

    Raises UsageError when --overwrite would delete the model, and what loading its
    tokenizer raises, before anything is written.
    """
    settings = plan.settings
    out = plan.run.path
    iterations = range(settings.run.iterations)
    runs = [RunDirectory(iteration_folder(out, number)) for number in iterations]
    if session.done:
        owed = [run for run in runs if not _finished(run, "train", "checkpoint")]
        if not owed:
            return session.nothing_owed(session.done)
    inside = Path(plan.model).resolve().is_relative_to(out.resolve())
    if session.invocation.overwrite and inside:
        raise UsageError(
            f"--overwrite would delete {plan.model}, the model to start from; name "
            "another --model, or another -o"
        )
    # A model without a tokenizer is refused before anything is written.
    load_tokenizer(plan.model)
    session.start()
    used = plan.used.train.aggregate
    if used != settings.train.aggregate:
        session.progress.note(
            f"train.aggregate: {used}, which credit.method "
            f"{settings.credit['method']} comes with"
        )
    history = asyncio.run(_iterate(plan, session))
    statistics: dict[str, Any] = {"success": history}
    if used:
        statistics["aggregate"] = used
    counts = {"iterations": len(history)}
    return session.finish(latest=True, statistics=statistics, counts=counts)


def credit_of(settings: Settings) -> str | None:
    """The credit method of every iteration; None where the objective reads no credit.

    Raises UsageError for an unknown method or switch, and for a method that needs what
    no rollout writes.
    """
    name, _, switches = make_credit(settings.credit)
    if not make_objective(settings.train.objective).reads_credit:
        return None
    if known(name).needs_values:
        raise UsageError(
            f"credit.method {name}: needs a critic's value of every step, and no "
            "policy stores one yet; choose a method without a critic, for instance "
            "--set credit.method=grpo"
        )
    has_phases = isinstance(settings.rollout, RootedRollout)
    if getattr(switches, "first_phase", "all") != "all" and not has_phases:
        raise UsageError(
            f"credit.first_phase: trees of rollout.method {settings.rollout.method} "
            f"have no first phase; sample with {', '.join(methods_with('roots'))}, or "
            "take --set credit.first_phase=all"
        )
    return name


async def _iterate(plan: LoopPlan, session: Session) -> list[float]:
    """Runs all iterations and returns the share of success of each."""
    settings = plan.settings
    out = plan.run.path
    progress = session.progress
    model = plan.model
    history = list[float]()
    progress.start("run", settings.run.iterations)
    async with (
        EnginePool(settings.environment) as pool,
        aclosing(Workshop(pool)) as workshop,
    ):
        for iteration in range(settings.run.iterations):
            folder = iteration_folder(out, iteration)
            counts = await _iteration(plan, session, iteration, workshop, model)
            model = str(folder / "checkpoint")
            point_to(out / "checkpoint", Path(folder.name) / "checkpoint")
            successes = counts.get("success", 0)
            leaves = counts.get("leaves", 0)
            history.append(round(successes / max(1, leaves), 4))
            progress.advance(1, success=history[-1])
    progress.stop()
    return history


async def _iteration(
    plan: LoopPlan,
    session: Session,
    iteration: int,
    workshop: Workshop,
    model: str,
) -> dict[str, int]:
    """Runs the stages of one iteration that are owed; returns the rollout's counts.

    The objective says whether it reads credit, and whether its reference is the loop's
    start or the iteration's.
    """
    folder = iteration_folder(plan.run.path, iteration)
    settings = with_changes(plan.settings, rollout={"iteration": iteration})
    run = RunDirectory(folder)
    # A stage that was interrupted resumes where it stopped.
    invocation = Invocation(session.invocation.command, resume=True)
    record = _finished(run, "rollout", "trees.jsonl")
    if record is None:

        def warn(text: str) -> None:
            session.progress.note(f"{folder.name}: {text}")

        rollout = plan_rollout(settings, folder, model=model, world=plan.world)
        with Session(rollout, invocation) as inner:
            inner.check()
            record = await grow_trees(rollout, inner, workshop, warn)
    name = credit_of(settings)
    stage = f"credit/{name}"
    if name and not _finished(run, stage, f"{stage}.jsonl"):
        carry_out(plan_credit(settings, folder), perform_credit, invocation)
    if not _finished(run, "train", "checkpoint"):
        reference = settings.train.reference
        if make_objective(settings.train.objective).anchored(settings.train):
            reference = reference or plan.model
        run_name = settings.tracking.name or plan.run.path.resolve().name
        settings = with_changes(
            settings,
            train={"credit": name, "reference": reference},
            tracking={"name": run_name},
        )
        tracking = plan.run.tracking
        update = plan_train(settings, folder, None, model=model, tracking_dir=tracking)
        carry_out(update, partial(perform_train, latest=False), invocation)
    return record.counts


def iteration_folder(out: Path, iteration: int) -> Path:
    """The run directory of one iteration."""
    return out / f"iteration_{iteration:03d}"


def _finished(run: RunDirectory, stage: str, output: str) -> StageRecord | None:
    """The manifest entry of a stage that ended and whose output is still there."""
    return run.finished(stage) if (run.path / output).exists() else None


def point_to(link: Path, target: Path) -> None:
    """Makes `link` a symbolic link to `target`, atomically.

    `target` is relative to the link's folder.
    """
    temporary = link.with_name(f".{link.name}.part")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target, target_is_directory=True)
    os.replace(temporary, link)
