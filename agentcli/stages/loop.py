"""run: the loop rollout -> assign-credit -> train, with one folder per iteration.

Each iteration calls the same stages as the separate commands, on the same files, so
both ways give the same trees, credit and checkpoints. Only the engine processes keep
running in between, and the policy if it can load other weights. On a GPU, training is
in processes of its own (update.py). A killed loop resumes at the first stage without a
manifest entry. Evaluations in between use their own seeds,
so the training is the same without them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentcli.errors import UsageError
from agentcli.evaluation.record import LoopMetrics, Rate
from agentcli.policies.load import load_tokenizer
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, credit_name, known_hashes
from agentcli.records.types import StageRecord
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.credit import perform as perform_credit
from agentcli.stages.credit import plan as plan_credit
from agentcli.stages.evaluate import perform as evaluate
from agentcli.stages.iterations import (
    best_iteration,
    drop_old,
    evaluation_figures,
    evaluation_of,
    finished,
    has_fallen,
    is_trained,
    iteration_folder,
    loop_metrics,
    point_to,
    refuse_unreadable,
    updates_after,
    write_metrics,
)
from agentcli.stages.loop_plan import (
    LoopPlan,
    StartingModels,
    first_critic,
    plan_inner_evaluation,
    with_critic,
)
from agentcli.stages.plan import model_sources, plain, with_changes
from agentcli.stages.progress import Within
from agentcli.stages.rollout import perform as perform_rollout
from agentcli.stages.rollout import plan as plan_rollout
from agentcli.stages.rollout import results_of_run
from agentcli.stages.session import Invocation, Session, carry_out
from agentcli.stages.update import IterationUpdate, release_memory, train_in_children
from agentcli.stages.workplace import Workplace, open_workplace
from agentcli.training.objectives import make_objective

FALLEN = (
    "warning: success fell below half of its best; try a lower --learning-rate, or more "
    "tasks an iteration"
)


async def perform(plan: LoopPlan, session: Session) -> StageRecord:
    """Writes one run directory per iteration.

    Raises UsageError if --overwrite would delete the model, and what loading its
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
    # Refuse a model without a tokenizer before anything is written.
    load_tokenizer(plan.model, settings.policy.chat_template_kwargs)
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
    """The first iteration with something left to do; all earlier ones are complete."""
    out = plan.run.path
    iterations = plan.settings.run.iterations
    for iteration in range(iterations):
        run = RunDirectory(iteration_folder(out, iteration))
        if not is_trained(out, iteration) or _owes_evaluation(plan, iteration, run):
            return iteration
    return iterations


def _owes_evaluation(plan: LoopPlan, iteration: int, run: RunDirectory) -> bool:
    """Whether an iteration's policy can and must still be evaluated."""
    every = plan.settings.run.evaluate_every
    last = plan.settings.run.iterations - 1
    if every is None or ((iteration + 1) % every and iteration != last):
        return False
    return is_there(run.checkpoint) and evaluation_of(run, plan.label) is None


async def _iterate(plan: LoopPlan, session: Session) -> list[LoopMetrics]:
    """Runs all iterations and returns the metrics of each."""
    settings = plan.settings
    out = plan.run.path
    progress = session.progress
    model = plan.model
    critic = first_critic(settings, model)
    lines = list[LoopMetrics]()
    successes = list[Rate]()
    said = set[str]()
    done = _first_owed(plan)
    progress.start(Standing("run", settings.run.iterations, done))
    async with open_workplace(settings, progress) as workplace:
        for iteration in range(settings.run.iterations):
            folder = iteration_folder(out, iteration)
            start = StartingModels(model, critic)
            await _iteration(plan, session, iteration, workplace, start, said)
            model = str(folder / "checkpoint")
            if critic is not None:
                critic = str(folder / "critic")
            lines.append(loop_metrics(out, iteration, plan.label))
            successes.append(results_of_run(RunDirectory(folder)).success)
            # Iterations before the last finished one stay as a killed loop left them.
            if iteration >= done - 1:
                write_metrics(plan.run.metrics, lines)
                _keep(plan, lines, progress)
            if has_fallen(successes) and FALLEN not in said:
                said.add(FALLEN)
                progress.note(f"{folder.name}: {FALLEN}")
            if iteration >= done:
                success = lines[-1].figures["rollout/success"]
                progress.advance(1, figures={"success": round(success, 2)})
    progress.stop()
    _track_last_evaluation(plan)
    return lines


def _keep(plan: LoopPlan, lines: list[LoopMetrics], progress: Progress) -> None:
    """Links the newest and the best weights, and deletes those not to be kept."""
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
    workplace: Workplace,
    start: StartingModels,
    said: set[str],
) -> None:
    """Runs those stages of one iteration that are not done yet."""
    folder = iteration_folder(plan.run.path, iteration)
    warn = _warner(session, folder, said)
    run = RunDirectory(folder)
    if finished(run, "rollout", "trees.jsonl") is None:
        await _rollout(plan, session, iteration, workplace, start, warn)
    if not is_trained(plan.run.path, iteration):
        await _learn(plan, session, iteration, start, warn)
        refuse_unreadable(run, plan.settings.rollout.method)
    run.forget_snapshot()
    if _owes_evaluation(plan, iteration, run):
        evaluation = plan_inner_evaluation(
            plan.settings, folder, str(run.checkpoint), plan.world
        )
        with Session(evaluation, _inside(session, None)) as inner:
            inner.check()
            await evaluate(evaluation, inner, workplace)


def _inside(session: Session, of: str | None = "success") -> Invocation:
    """How the loop calls one of its stages: an interrupted one resumes.

    The loop's bar shows the stage's success under the name `of`.
    """
    command = session.invocation.command
    return Invocation(command, resume=True, progress=Within(session.progress, of))


async def _rollout(
    plan: LoopPlan,
    session: Session,
    iteration: int,
    workplace: Workplace,
    start: StartingModels,
    warn: Callable[[str], None],
) -> None:
    """Grows the trees of one iteration."""
    folder = iteration_folder(plan.run.path, iteration)
    settings = with_critic(plan.settings, start.critic, iteration)
    rollout = plan_rollout(settings, folder, model=start.model, world=plan.world)
    with Session(rollout, _inside(session)) as inner:
        inner.check()
        await perform_rollout(rollout, inner, workplace, warn)


def _warner(session: Session, folder: Path, said: set[str]) -> Callable[[str], None]:
    """Shows what an iteration warns of; what holds of every iteration is said once."""

    def warn(text: str) -> None:
        if text not in said:
            said.add(text)
            session.progress.note(f"{folder.name}: {text}")

    return warn


async def _learn(
    plan: LoopPlan,
    session: Session,
    iteration: int,
    start: StartingModels,
    warn: Callable[[str], None],
) -> None:
    """Assigns credit to the trees of one iteration, and trains on them.

    The objective decides whether it reads credit, and whether its reference is the
    loop's initial model or the iteration's.
    """
    out = plan.run.path
    folder = iteration_folder(out, iteration)
    settings = with_critic(plan.settings, start.critic, iteration)
    method = plan.credit
    name = credit_name(method) if method else None
    stage = f"credit/{name}"
    if name and not finished(RunDirectory(folder), stage, f"{stage}.jsonl"):
        carry_out(plan_credit(settings, folder), perform_credit, _inside(session))
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
    update = IterationUpdate(
        settings=plain(settings),
        run=str(folder),
        model=start.model,
        tracking=str(plan.run.tracking),
        beside=evaluation_figures(before, plan.label) if iteration else {},
        command=session.invocation.command,
        hashes=known_hashes(model_sources(start.model)),
    )
    # A sampler that stays in memory keeps no more than its weights.
    release_memory()
    if plan.processes:
        await train_in_children(update, plan.processes, session.progress, warn)
    else:
        update.carry_out(session.progress, warn)
        release_memory()


def _track_last_evaluation(plan: LoopPlan) -> None:
    """Sends the metrics of an evaluation that no training follows to the trackers."""
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
