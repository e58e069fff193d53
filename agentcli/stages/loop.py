"""run: the loop rollout -> assign-credit -> train, with one folder per iteration.

Each iteration calls the same stages as the separate commands, on the same files, so
both ways give the same trees, credit and checkpoints. Only the engine processes keep
running in between, and the policy if it can load other weights. On a GPU, training is
in processes of its own (update.py). A killed loop resumes at the first stage without a
manifest entry. Evaluations in between use their own seeds, so the training is the same
without them.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentcli.credit.registry import known
from agentcli.environments.protocol import World
from agentcli.errors import UsageError
from agentcli.evaluation.record import EvaluationSummary, LoopMetrics, Rate, figures
from agentcli.policies.load import load_tokenizer
from agentcli.records.files import read_json, rewriting
from agentcli.records.free_memory import modules_passed_over
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, credit_name, known_hashes, point_to
from agentcli.records.settings import Settings
from agentcli.records.types import Outcome, StageRecord
from agentcli.registry import own_files
from agentcli.reports.standing import Standing
from agentcli.stages import sampling
from agentcli.stages.cluster import Backend, open_backend
from agentcli.stages.credit import credit_of
from agentcli.stages.credit import perform as perform_credit
from agentcli.stages.credit import plan as plan_credit
from agentcli.stages.evaluate import EvaluationPlan, plan_evaluation
from agentcli.stages.evaluate import perform as evaluate
from agentcli.stages.panels import iteration_tasks, panel_for
from agentcli.stages.plan import (
    first_difference,
    model_sources,
    plain,
    with_changes,
    with_model,
)
from agentcli.stages.rollout import fork_depth_of, results_of_run
from agentcli.stages.rollout import perform as perform_rollout
from agentcli.stages.rollout import plan as plan_rollout
from agentcli.stages.session import Invocation, Session, Within, carry_out
from agentcli.stages.tally import may_pass
from agentcli.stages.train import (
    checked_objective,
    critic_of,
    refuse_adapter_beside_model,
    refuse_greedy,
    with_adapters,
    with_aggregate,
)
from agentcli.stages.update import (
    IterationUpdate,
    refuse_unreadable,
    release_memory,
    train_in_children,
    training_processes,
    updates_after,
    updates_before,
)
from agentcli.training.objectives import make_objective

EVALUATED = ("split", "tasks", "samples", "temperature", "label", "budget")
"""Settings of `evaluation` that the evaluations of a loop read."""


def first_critic(settings: Settings, model: str) -> str | None:
    """The critic of the first iteration; None for an objective without one.

    It is rollout.critic, or the critic that a training of `model` starts from.
    """
    critic = critic_of(settings, model)
    if critic is not None and settings.rollout.critic is not None:
        return settings.rollout.critic
    return critic


def with_critic(settings: Settings, critic: str | None, iteration: int) -> Settings:
    """Settings of an iteration whose training continues this critic.

    Its rollouts use the critic too, if the credit needs its values.
    """
    settings = with_changes(settings, rollout={"iteration": iteration})
    if critic is None:
        return settings
    options = {**settings.train.options, "critic": critic}
    settings = with_changes(settings, train={"options": options})
    if not known(settings.credit["method"]).needs_values:
        return settings
    return with_changes(settings, rollout={"critic": critic})


@dataclass(frozen=True, kw_only=True)
class LoopPlan(sampling.SamplingPlan):
    """A loop that is ready to begin."""

    model: str
    tasks: int
    """Tasks per iteration."""
    credit: str | None
    """The credit method of its iterations; None if the objective reads no credit."""
    used: Settings
    """The settings with train.aggregate resolved."""
    processes: int
    """How many processes of their own train an iteration; 0: this one trains."""
    label: str | None
    """The label of its evaluations; None if there are none."""

    def differs(self, begun: Mapping[str, Any]) -> str | None:
        """The first setting in which its evaluations are not those of before.

        They make one curve, and its best weights are kept.
        """
        every = begun["run"]["evaluate_every"]
        if every is None:
            return None
        if self.label is None:
            return f"run.evaluate_every was {every}, now None"
        before = _evaluated(begun)
        return first_difference(before, _evaluated(plain(self.settings)))

    def counts(self) -> dict[str, int]:
        """The iterations, their tasks, and the largest possible number of leaves."""
        iterations = self.settings.run.iterations
        return {
            "iterations": iterations,
            "panel_tasks": len(self.panel.tasks),
            "tasks_per_iteration": self.tasks,
            "leaves_at_most": iterations * self.tasks * self.settings.rollout.leaves,
        }


def plan(settings: Settings, out: Path, *, model: str | None) -> LoopPlan:
    """Plans a loop of `run.iterations` in `out`; `out`/checkpoint links the last one's.

    Raises UsageError without a model that can be trained, for settings that its
    rollouts or its training refuse, and for GPUs that they cannot use.
    """
    if model is None or settings.policy.kind == "openai":
        raise UsageError(
            f"run trains a policy that it loads itself, not {settings.policy.kind}; "
            "name one with --model DIR|ID"
        )
    processes = training_processes(settings.run)
    objective = checked_objective(settings, max(1, processes))
    if not objective.trains_policy:
        raise UsageError(
            f"train.objective {objective.name}: trains no policy, which a loop "
            "repeats; name another with --set train.objective=NAME"
        )
    credit = credit_of(settings)
    refuse_adapter_beside_model(settings)
    refuse_greedy(settings)
    sampling.refuse_shard(settings, "run")
    world = sampling.check_sampling(settings, model)
    settings = with_adapters(settings, model, first_critic(settings, model))
    settings = with_model(settings, model)
    panel = panel_for(world, settings.environment)
    per_step = settings.rollout.tasks_per_step
    tasks = iteration_tasks(panel.tasks, per_step, 0, settings.seed)
    run = RunDirectory(out)
    folders = sorted({iteration_folder(out, 0), *out.glob("iteration_*")})
    label = None
    if settings.run.evaluate_every is not None:
        first = plan_inner_evaluation(settings, folders[0], model, world)
        label = first.settings.evaluation.label
    return LoopPlan(
        stage="run",
        run=run,
        settings=settings,
        sections=(*sampling.SECTIONS, "credit", "train", "threads"),
        inputs=sampling.inputs_of(settings, model),
        sources=[*sampling.files_read(settings, model), *own_files(credit or "")],
        outputs=[*folders, run.checkpoint, run.best, run.metrics, run.tracking],
        world=world,
        model=model,
        panel=panel,
        seed=settings.seed,
        tasks=len(tasks),
        credit=credit,
        used=with_aggregate(settings, credit),
        processes=processes,
        label=label,
    )


def _evaluated(settings: Mapping[str, Any]) -> dict[str, Any]:
    """How a loop with these settings evaluates, by their paths; defaults are resolved."""
    chosen = {f"evaluation.{name}": settings["evaluation"][name] for name in EVALUATED}
    if chosen["evaluation.temperature"] is None:
        chosen["evaluation.temperature"] = settings["policy"]["temperature"]
    if chosen["evaluation.label"] is None:
        chosen["evaluation.label"] = chosen["evaluation.split"]
    return chosen


def plan_inner_evaluation(
    settings: Settings, folder: Path, model: str, world: World
) -> EvaluationPlan:
    """The evaluation of one iteration's policy, as `agentcli eval` would plan it."""
    # These choose tasks for training; here evaluation.split determines them.
    settings = with_changes(settings, environment={"panel": None, "where": {}})
    return plan_evaluation(settings, folder, model=model, world=world)


def iteration_folder(out: Path, iteration: int) -> Path:
    """The run directory of one iteration."""
    return out / f"iteration_{iteration:03d}"


def finished(run: RunDirectory, stage: str, output: str) -> StageRecord | None:
    """The manifest entry of a finished stage whose output still exists."""
    return run.finished(stage) if is_there(run.path / output) else None


def is_rolled_out(run: RunDirectory, settings: Settings) -> bool:
    """Whether an iteration's trees are there, and few enough of their leaves errored.

    What credit or a training has begun on was accepted before.
    """
    record = finished(run, "rollout", "trees.jsonl")
    if record is None:
        return False
    if run.credit_files or is_there(run.begun("train")):
        return True
    return may_pass(settings, record.counts["errored"], record.counts["leaves"])


def trained(out: Path, iterations: int) -> list[bool]:
    """Whether nothing is left to train, by iteration.

    Weights exist, or were used and deleted.
    """
    # A loop that is gone on with may be told to do fewer than it has.
    begun = len(list(out.glob("iteration_*")))
    done = False
    known = []
    for iteration in reversed(range(max(iterations, begun))):
        run = RunDirectory(iteration_folder(out, iteration))
        has_weights = done or is_there(run.checkpoint)
        done = has_weights and run.finished("train") is not None
        known.append(done)
    return known[::-1]


def evaluation_of(run: RunDirectory, label: str | None) -> EvaluationSummary | None:
    """The evaluation summary of one iteration, if it has finished."""
    if label is None:
        return None
    summary = run.evaluation(label).with_suffix(".json")
    if run.finished(f"evaluation/{label}") is None or not is_there(summary):
        return None
    return read_json(summary, EvaluationSummary)


def evaluation_figures(run: RunDirectory, label: str | None) -> dict[str, float]:
    """The metrics of its evaluation; empty without one."""
    summary = evaluation_of(run, label)
    return figures(summary, "eval") if summary else {}


def loop_metrics(out: Path, iteration: int, label: str | None) -> LoopMetrics:
    """The metrics line of one iteration."""
    run = RunDirectory(iteration_folder(out, iteration))
    measured = figures(results_of_run(run), "rollout")
    return LoopMetrics(
        iteration=iteration,
        updates=updates_before(run),
        figures=measured | evaluation_figures(run, label),
    )


def has_fallen(successes: Sequence[Rate]) -> bool:
    """Whether the newest success is below half of the best, for certain."""
    best = max(successes, key=lambda success: success.rate)
    newest = successes[-1]
    # Both must hold: half of a small number is within the noise of a few episodes.
    return newest.rate < best.rate / 2 and newest.high < best.low


def best_iteration(lines: Sequence[LoopMetrics]) -> int | None:
    """The first iteration with the highest success in an evaluation."""
    evaluated = [line for line in lines if "eval/success" in line.figures]
    if not evaluated:
        return None
    return max(evaluated, key=lambda line: line.figures["eval/success"]).iteration


def drop_old(out: Path, newest: int, keep: int, best: int | None) -> bool:
    """Deletes the weights, critics and optimisers of older iterations.

    The newest `keep` iterations and the best one stay. Returns whether anything was
    deleted.
    """
    dropped = False
    for iteration in range(newest - keep + 1):
        run = RunDirectory(iteration_folder(out, iteration))
        if iteration == best or not run.checkpoint.exists():
            continue
        # The checkpoint goes last, so that anything a kill leaves is deleted next time.
        run.optimizer.unlink(missing_ok=True)
        shutil.rmtree(run.critic, ignore_errors=True)
        shutil.rmtree(run.checkpoint)
        dropped = True
    return dropped


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
    if session.resumed:
        _refuse_fewer(plan)
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
    iterations = Iterations(plan, session)
    objective = make_objective(settings.train.objective)
    if not plan.processes:
        # A child that trains imports for itself.
        objective.load()
    with nullcontext() if plan.processes else modules_passed_over():
        lines = await iterations.run()
    history = [round(line.figures["rollout/success"], 4) for line in lines]
    statistics: dict[str, Any] = {"success": history}
    if any(iterations.fork_depths):
        statistics["fork_depth"] = iterations.fork_depths
    if used:
        statistics["aggregate"] = used
    best = best_iteration(lines)
    if best is not None:
        statistics["best"] = best
    counts = {"iterations": len(history)}
    return session.finish(latest=True, statistics=statistics, counts=counts)


def _refuse_fewer(plan: LoopPlan) -> None:
    """Raises UsageError if the loop would end with weights that were deleted."""
    if plan.settings.run.keep is None:
        return
    out, iterations = plan.run.path, plan.settings.run.iterations
    last = RunDirectory(iteration_folder(out, iterations - 1))
    if trained(out, iterations)[iterations - 1] and not is_there(last.checkpoint):
        begun = len(list(out.glob("iteration_*")))
        raise UsageError(
            f"run.iterations: {iterations}: the weights of {last.path} were deleted "
            f"(run.keep); type --iterations {begun} or more"
        )


def _first_owed(plan: LoopPlan) -> int:
    """The first iteration with something left to do; all earlier ones are complete."""
    out = plan.run.path
    iterations = plan.settings.run.iterations
    for iteration, is_trained in enumerate(trained(out, iterations)[:iterations]):
        run = RunDirectory(iteration_folder(out, iteration))
        if not is_trained or _owes_evaluation(plan, iteration, run):
            return iteration
    return iterations


def _owes_evaluation(plan: LoopPlan, iteration: int, run: RunDirectory) -> bool:
    """Whether an iteration's policy can and must still be evaluated."""
    every = plan.settings.run.evaluate_every
    last = plan.settings.run.iterations - 1
    # The last policy is always evaluated: it is the one that the loop is run for.
    if every is None or ((iteration + 1) % every and iteration != last):
        return False
    summary = evaluation_of(run, plan.label)
    if summary is not None:
        errored = summary.outcomes[Outcome.ERRORED]
        if may_pass(plan.settings, errored, summary.episodes):
            return False
    return is_there(run.checkpoint)


class Iterations:
    """The iterations of a loop; each starts from the models of the one before."""

    def __init__(self, plan: LoopPlan, session: Session) -> None:
        self._plan = plan
        self._session = session
        self._model = plan.model
        self._critic = first_critic(plan.settings, plan.model)
        """None if the objective has no critic."""
        self._said = set[str]()
        """Warnings so far: what holds of every iteration is said once."""
        self.fork_depths = list[int | None]()
        """The median depth of each iteration's forks; None where there are none."""

    async def run(self) -> list[LoopMetrics]:
        """Runs what is not done yet, and returns the metrics of every iteration."""
        plan, progress = self._plan, self._session.progress
        iterations = plan.settings.run.iterations
        lines = list[LoopMetrics]()
        successes = list[Rate]()
        done = _first_owed(plan)
        is_trained = trained(plan.run.path, iterations)
        progress.start(Standing("run", iterations, done))
        async with open_backend(plan.settings, progress) as backend:
            for iteration in range(iterations):
                folder = iteration_folder(plan.run.path, iteration)
                # Those before the last finished one stay as a killed loop left them.
                if iteration >= done - 1:
                    await self._iteration(
                        iteration, folder, backend, is_trained[iteration]
                    )
                self._model = str(folder / "checkpoint")
                if self._critic is not None:
                    self._critic = str(folder / "critic")
                lines.append(loop_metrics(plan.run.path, iteration, plan.label))
                run = RunDirectory(folder)
                successes.append(results_of_run(run).success)
                self.fork_depths.append(fork_depth_of(run))
                if iteration >= done - 1:
                    # As a whole, so that resuming duplicates no lines.
                    with rewriting(plan.run.metrics) as writer:
                        for line in lines:
                            writer.write(line)
                    self._keep(lines)
                if has_fallen(successes) and FALLEN not in self._said:
                    self._said.add(FALLEN)
                    progress.note(f"{folder.name}: {FALLEN}")
                if iteration >= done:
                    success = lines[-1].figures["rollout/success"]
                    newest = {"success": round(success, 2)}
                    depth = self.fork_depths[-1]
                    if depth is not None:
                        newest["fork depth"] = depth
                    progress.advance(1, figures=newest)
        progress.stop()
        _track_last_evaluation(plan)
        return lines

    def _keep(self, lines: list[LoopMetrics]) -> None:
        """Links the newest and the best weights, and deletes those not to be kept."""
        run = self._plan.run
        newest = lines[-1].iteration
        best = best_iteration(lines)
        for link, iteration in ((run.checkpoint, newest), (run.best, best)):
            if iteration is not None:
                folder = iteration_folder(run.path, iteration)
                point_to(link, Path(folder.name) / "checkpoint")
        keep = self._plan.settings.run.keep
        if keep is None or not drop_old(run.path, newest, keep, best):
            return
        if newest == keep:
            self._session.progress.note(
                f"run.keep: {keep}: from now on the weights and optimisers of older "
                "iterations are deleted; keep all with --set run.keep=null"
            )

    async def _iteration(
        self, iteration: int, folder: Path, backend: Backend, is_trained: bool
    ) -> None:
        """Runs those stages of one iteration that are not done yet."""
        plan = self._plan
        run = RunDirectory(folder)

        def warn(text: str) -> None:
            if text not in self._said:
                self._said.add(text)
                self._session.progress.note(f"{folder.name}: {text}")

        settings = with_critic(plan.settings, self._critic, iteration)
        if not (is_trained or is_rolled_out(run, settings)):
            rollout = plan_rollout(
                settings, folder, model=self._model, world=plan.world
            )
            with Session(rollout, self._inside()) as inner:
                inner.check()
                await perform_rollout(rollout, inner, backend, warn)
        if not is_trained:
            await self._learn(settings, iteration, folder, warn)
        # Also where it was trained before: a loop that was refused stays refused.
        if plan.settings.run.unreadable == "end":
            refuse_unreadable(run, plan.settings.rollout)
        run.forget_snapshot()
        if _owes_evaluation(plan, iteration, run):
            evaluation = plan_inner_evaluation(
                plan.settings, folder, str(run.checkpoint), plan.world
            )
            with Session(evaluation, self._inside(None)) as inner:
                inner.check()
                await evaluate(evaluation, inner, backend)

    def _inside(self, of: str | None = "success") -> Invocation:
        """How the loop calls one of its stages: an interrupted one resumes.

        The loop's bar shows the stage's success under the name `of`.
        """
        within = Within(self._session.progress, of)
        typed = self._session.invocation
        return replace(typed, resume=True, overwrite=False, progress=within)

    async def _learn(
        self,
        settings: Settings,
        iteration: int,
        folder: Path,
        warn: Callable[[str], None],
    ) -> None:
        """Assigns credit to the trees of one iteration, and trains on them.

        The objective decides whether it reads credit, and whether its reference is the
        loop's initial model or the iteration's.
        """
        plan, progress = self._plan, self._session.progress
        out = plan.run.path
        name = credit_name(plan.credit) if plan.credit else None
        stage = f"credit/{name}"
        if name and not finished(RunDirectory(folder), stage, f"{stage}.jsonl"):
            carry_out(plan_credit(settings, folder), perform_credit, self._inside())
        reference = settings.train.reference
        if make_objective(settings.train.objective).anchored(settings.train):
            reference = reference or plan.model
        settings = with_changes(
            settings,
            train={"credit": name, "reference": reference},
            tracking={"name": settings.tracking.name or out.resolve().name},
        )
        before = RunDirectory(iteration_folder(out, iteration - 1))
        update = IterationUpdate(
            settings=plain(settings),
            run=str(folder),
            model=self._model,
            tracking=str(plan.run.tracking),
            beside=evaluation_figures(before, plan.label) if iteration else {},
            command=self._session.invocation.command,
            layers=self._session.invocation.layers,
            hashes=known_hashes(model_sources(self._model)),
        )
        # A sampler that stays in memory keeps no more than its weights.
        release_memory()
        if plan.processes:
            await train_in_children(update, plan.processes, progress, warn)
        else:
            update.carry_out(progress, warn)
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
        name=tracking.name or plan.run.path.resolve().name,
        folder=plan.run.tracking,
        kind="train",
        settings=plain(plan.settings.train),
        sampled=Sampled(measured),
    )
    # Figures that no update has carried are sent when the trackers are closed.
    with open_trackers(tracked, before=updates_after(last), done=0):
        pass
