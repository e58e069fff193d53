"""run: the loop rollout -> assign-credit -> train, with one folder per iteration.

Each iteration calls the very stages that the separate commands call, on the same files,
so both ways leave the same trees, credit and checkpoints; only the engine processes
stay alive in between, and the policy where it can take other weights. A killed loop
resumes at the stage that has no manifest entry yet. An evaluation in between draws from
seeds of its own, so that the training is the same without it.
"""

import dataclasses
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import World
from agentcli.errors import UsageError
from agentcli.evaluation.figures import LoopMetrics
from agentcli.policies.load import load_tokenizer
from agentcli.records.runs import RunDirectory, credit_name
from agentcli.records.settings import Settings
from agentcli.records.types import StageRecord
from agentcli.reports.count import Progress, Standing
from agentcli.stages.carried import StartingModels, first_critic, with_critic
from agentcli.stages.credit import credit_of
from agentcli.stages.credit import perform as perform_credit
from agentcli.stages.credit import plan as plan_credit
from agentcli.stages.estimate import Expected, expected_of_loop
from agentcli.stages.evaluate import EvaluationPlan, plan_evaluation
from agentcli.stages.evaluate import perform as evaluate
from agentcli.stages.iterations import (
    best_iteration,
    drop_old,
    evaluation_figures,
    evaluation_of,
    finished,
    is_trained,
    iteration_folder,
    loop_metrics,
    point_to,
    updates_after,
    write_metrics,
)
from agentcli.stages.panels import iteration_tasks, panel_for
from agentcli.stages.plan import plain, with_changes
from agentcli.stages.progress import Within
from agentcli.stages.rollout import perform as perform_rollout
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
    label: str | None
    """The label of its evaluations; None where there are none."""

    def counts(self) -> dict[str, int]:
        """The iterations, their tasks and the most leaves that they can have."""
        iterations = self.settings.run.iterations
        return {
            "iterations": iterations,
            "panel_tasks": len(self.panel.tasks),
            "tasks_per_iteration": self.tasks,
            "leaves_at_most": iterations * self.tasks * self.settings.rollout.leaves,
        }

    def expected(self) -> Expected:
        """What all iterations take."""
        return expected_of_loop(self.settings, self.run.path, self.model, self.tasks)


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
    label = None
    if settings.run.evaluate_every is not None:
        first = _plan_evaluation(settings, folders[0], model, world)
        label = first.settings.evaluation.label
    return LoopPlan(
        stage="run",
        run=run,
        settings=settings,
        sections=(*SECTIONS, "credit", "train", "threads"),
        inputs=sampling_inputs(settings, model),
        sources=sampling_sources(settings, model),
        outputs=[*folders, run.checkpoint, run.best, run.metrics, run.tracking],
        world=world,
        model=model,
        panel=panel,
        seed=settings.seed,
        tasks=len(tasks),
        used=with_aggregate(settings, credit),
        label=label,
    )


async def perform(plan: LoopPlan, session: Session) -> StageRecord:
    """Writes one run directory per iteration.

    Raises UsageError when --overwrite would delete the model, and what loading its
    tokenizer raises, before anything is written.
    """
    settings = plan.settings
    out = plan.run.path
    if session.done and _first_owed(plan) == settings.run.iterations:
        return session.nothing_owed(session.done)
    inside = Path(plan.model).resolve().is_relative_to(out.resolve())
    if session.invocation.overwrite and inside:
        raise UsageError(
            f"--overwrite would delete {plan.model}, the model to start from; name "
            "another --model, or another -o"
        )
    session.progress.wait("loading model")
    # A model without a tokenizer is refused before anything is written.
    load_tokenizer(plan.model)
    session.start()
    used = plan.used.train.aggregate
    if used != settings.train.aggregate:
        session.progress.note(
            f"train.aggregate: {used}, which credit.method "
            f"{settings.credit['method']} comes with"
        )
    lines = await _iterate(plan, session)
    history = [round(line.figures["rollout/success"], 4) for line in lines]
    statistics: dict[str, Any] = {"success": history}
    if used:
        statistics["aggregate"] = used
    best = best_iteration(lines)
    if best is not None:
        statistics["best"] = best
    counts = {"iterations": len(history)}
    return session.finish(latest=True, statistics=statistics, counts=counts)


def _first_owed(plan: LoopPlan) -> int:
    """The number of iterations at the loop's beginning of which nothing is owed."""
    out = plan.run.path
    iterations = plan.settings.run.iterations
    for iteration in range(iterations):
        run = RunDirectory(iteration_folder(out, iteration))
        if not is_trained(out, iteration) or _owes_evaluation(plan, iteration, run):
            return iteration
    return iterations


def _owes_evaluation(plan: LoopPlan, iteration: int, run: RunDirectory) -> bool:
    """Whether the policy of an iteration is still to be evaluated, and can be."""
    every = plan.settings.run.evaluate_every
    last = plan.settings.run.iterations - 1
    if every is None or ((iteration + 1) % every and iteration != last):
        return False
    return run.checkpoint.exists() and evaluation_of(run, plan.label) is None


async def _iterate(plan: LoopPlan, session: Session) -> list[LoopMetrics]:
    """Runs all iterations and returns what was measured in each."""
    settings = plan.settings
    out = plan.run.path
    progress = session.progress
    model = plan.model
    critic = first_critic(settings, model)
    lines = list[LoopMetrics]()
    done = _first_owed(plan)
    progress.start(Standing("run", settings.run.iterations, done))
    async with (
        EnginePool(settings.environment) as pool,
        aclosing(Workshop(pool)) as workshop,
    ):
        for iteration in range(settings.run.iterations):
            folder = iteration_folder(out, iteration)
            start = StartingModels(model, critic)
            await _iteration(plan, session, iteration, workshop, start)
            model = str(folder / "checkpoint")
            if critic is not None:
                critic = str(folder / "critic")
            lines.append(loop_metrics(out, iteration, plan.label))
            write_metrics(plan.run.metrics, lines)
            _keep(plan, lines, progress)
            if iteration >= done:
                success = lines[-1].figures["rollout/success"]
                progress.advance(1, figures={"success": round(success, 2)})
    progress.stop()
    _track_last_evaluation(plan)
    return lines


def _keep(plan: LoopPlan, lines: list[LoopMetrics], progress: Progress) -> None:
    """Points to the newest weights and the best, and deletes those not to be kept."""
    out = plan.run.path
    newest = lines[-1].iteration
    best = best_iteration(lines)
    for link, iteration in ((plan.run.checkpoint, newest), (plan.run.best, best)):
        if iteration is not None:
            folder = iteration_folder(out, iteration)
            point_to(link, Path(folder.name) / "checkpoint")
    keep = plan.settings.run.keep
    if keep is None or not drop_old(out, newest, keep, best):
        return
    if newest == keep:
        progress.note(
            f"run.keep: {keep}: from now on the weights and optimisers of older "
            "iterations are deleted; keep all with --set run.keep=null"
        )


async def _iteration(
    plan: LoopPlan,
    session: Session,
    iteration: int,
    workshop: Workshop,
    start: StartingModels,
) -> None:
    """Runs the stages of one iteration that are owed."""
    folder = iteration_folder(plan.run.path, iteration)
    run = RunDirectory(folder)
    # A stage that was interrupted goes on where it stopped.
    invocation = Invocation(
        session.invocation.command,
        resume=True,
        progress=Within(session.progress, "success"),
    )
    if finished(run, "rollout", "trees.jsonl") is None:
        await _rollout(plan, session, iteration, workshop, start)
    if not is_trained(plan.run.path, iteration):
        _learn(plan, iteration, start, invocation)
    if _owes_evaluation(plan, iteration, run):
        evaluation = _plan_evaluation(
            plan.settings, folder, str(run.checkpoint), plan.world
        )
        invocation = dataclasses.replace(invocation, progress=Within(session.progress))
        with Session(evaluation, invocation) as inner:
            inner.check()
            await evaluate(evaluation, inner, workshop)


async def _rollout(
    plan: LoopPlan,
    session: Session,
    iteration: int,
    workshop: Workshop,
    start: StartingModels,
) -> None:
    """Grows the trees of one iteration."""
    folder = iteration_folder(plan.run.path, iteration)
    settings = with_critic(plan.settings, start.critic, iteration)
    invocation = Invocation(
        session.invocation.command,
        resume=True,
        progress=Within(session.progress, "success"),
    )

    def warn(text: str) -> None:
        session.progress.note(f"{folder.name}: {text}")

    rollout = plan_rollout(settings, folder, model=start.model, world=plan.world)
    with Session(rollout, invocation) as inner:
        inner.check()
        await perform_rollout(rollout, inner, workshop, warn)


def _learn(
    plan: LoopPlan, iteration: int, start: StartingModels, invocation: Invocation
) -> None:
    """Assigns credit to the trees of one iteration, and trains on them.

    The objective says whether it reads credit, and whether its reference is the loop's
    start or the iteration's.
    """
    out = plan.run.path
    folder = iteration_folder(out, iteration)
    settings = with_critic(plan.settings, start.critic, iteration)
    method = credit_of(settings)
    name = credit_name(method) if method else None
    stage = f"credit/{name}"
    if name and not finished(RunDirectory(folder), stage, f"{stage}.jsonl"):
        carry_out(plan_credit(settings, folder), perform_credit, invocation)
    reference = settings.train.reference
    if make_objective(settings.train.objective).anchored(settings.train):
        reference = reference or plan.model
    run_name = settings.tracking.name or out.resolve().name
    settings = with_changes(
        settings,
        train={"credit": name, "reference": reference},
        tracking={"name": run_name},
    )
    before = RunDirectory(iteration_folder(out, iteration - 1))
    update = plan_train(
        settings,
        folder,
        None,
        model=start.model,
        tracking_dir=plan.run.tracking,
        beside=evaluation_figures(before, plan.label) if iteration else {},
    )
    carry_out(update, partial(perform_train, latest=False), invocation)


def _plan_evaluation(
    settings: Settings, folder: Path, model: str, world: World
) -> EvaluationPlan:
    """The evaluation of one iteration's policy, as `agentcli eval` would make it."""
    # A panel file is for training: evaluation.split names the tasks here.
    settings = with_changes(settings, environment={"panel": None})
    return plan_evaluation(settings, folder, model=model, world=world)


def _track_last_evaluation(plan: LoopPlan) -> None:
    """Sends the figures that no training follows to the trackers."""
    tracking = plan.settings.tracking
    folder = iteration_folder(plan.run.path, plan.settings.run.iterations - 1)
    last = RunDirectory(folder)
    measured = evaluation_figures(last, plan.label)
    if not tracking.to or not measured:
        return
    from agentcli.training.loop.trackers import Sampled, Tracked, open_trackers

    tracked = Tracked(
        tracking=tracking,
        name=plan.run.path.resolve().name,
        folder=plan.run.tracking,
        kind="train",
        settings=plain(plan.settings.train),
        sampled=Sampled(measured),
    )
    with open_trackers(tracked, before=updates_after(last), done=0):
        pass
