"""train: reads trees and credit, and writes an updated checkpoint.

train.objective decides what is learned (training/objectives.py); an objective that
reads no credit gets none. The credit method matters only if train.aggregate is not set:
then the loss is averaged as in that method's paper.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from agentcli.credit.registry import known
from agentcli.errors import DataError, UsageError
from agentcli.evaluation.record import figures
from agentcli.policies.load import existing, is_critic
from agentcli.records.files import read_numbered, read_records
from agentcli.records.processes import process_count
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.training_settings import TrainSettings
from agentcli.records.types import Credit, StageRecord, Tree
from agentcli.stages.memory import MemoryNeed, fitting_settings, need_of_training
from agentcli.stages.plan import (
    StagePlan,
    check_critic,
    check_model,
    model_sources,
    template_condition,
    with_adapter,
    with_changes,
    with_model,
)
from agentcli.stages.rollout import results_of_run
from agentcli.stages.session import Session, updates_bar
from agentcli.stages.trees import checked_trees, count_trees, note_lost_trees
from agentcli.training.objectives import (
    CriticOptions,
    Objective,
    check_sharding,
    make_objective,
    options_of,
)
from agentcli.training.steps import check_sampled

if TYPE_CHECKING:
    from agentcli.training.loop.trackers import Tracked

EMPTY: Mapping[str, float] = MappingProxyType({})
WIDE_GAP = 0.05
"""Nats per token, from which a gap between sampler and trainer takes up much of the
clip range.
"""


def refuse_adapter_beside_model(settings: Settings) -> None:
    """Raises UsageError for policy.adapter: train an adapter by giving it as model."""
    if settings.policy.adapter is not None:
        raise UsageError(
            f"policy.adapter {settings.policy.adapter}: training starts from a "
            "model; name the adapter's directory as --model"
        )


def refuse_greedy(settings: Settings) -> None:
    """Raises UsageError for a loop that samples greedily and whose loss uses ratios."""
    objective = make_objective(settings.train.objective)
    # Its trainer would refuse every step.
    if settings.policy.temperature == 0 and objective.takes_ratios:
        raise UsageError(
            "policy.temperature: 0: a greedy response has no behaviour policy to "
            "take a ratio to; use --temperature above 0"
        )


def checked_objective(settings: Settings, processes: int | None = None) -> Objective:
    """The objective in the settings, for a training in so many processes.

    None: as many as this command has.

    Raises UsageError for options that it does not have, and for train.packing and
    train.sharding if they would have no effect; for a reference what `check_model`
    raises.
    """
    objective = make_objective(settings.train.objective)
    options_of(settings.train)
    if settings.train.packing == "on" and not objective.packs:
        raise UsageError(
            f"train.packing: on, but objective {objective.name} runs every row by "
            "itself; set train.packing=auto"
        )
    if settings.train.sharding != "none" and not objective.shards:
        raise UsageError(
            f"train.sharding: fsdp, but objective {objective.name} needs a whole model "
            "in every process; set train.sharding=none"
        )
    check_sharding("train", settings.train, processes or process_count())
    # Where train.beta is not read, DPO has a weight of its own.
    penalised = settings.train.beta != 0 or "beta" in objective.unread
    if penalised and "reference" not in objective.unread:
        setting = "train.reference"
        check_model(settings.train.reference, setting, f"--set {setting}=DIR|ID")
    return objective


def with_aggregate(settings: Settings, method: str | None) -> Settings:
    """Settings with the default train.aggregate of credit `method`, if none is set.

    `method` is None for an objective that reads no credit.
    """
    if method is None or settings.train.aggregate is not None:
        return settings
    return with_changes(settings, train={"aggregate": known(method).aggregate})


def method_of(credit: Path) -> str:
    """The method that a credit file names.

    Raises DataError for a file that is empty or damaged.
    """
    for _, given in read_numbered(credit, Credit):
        return given.method
    raise DataError(
        f"{credit}: ends after 0 records; run assign-credit with --overwrite"
    )


@dataclass(frozen=True, kw_only=True)
class TrainPlan(StagePlan):
    """A training that is ready to begin."""

    trees: Path
    credit: Path | None
    """None for an objective that reads no credit."""
    model: str
    carried: Path
    """The optimiser state next to the starting checkpoint."""
    carry: bool
    """Whether it exists and is used."""
    used: Settings
    """The settings with train.aggregate resolved.

    `settings` keep the user's value, since later credit may come from another method.
    """
    tracking_dir: Path
    beside: Mapping[str, float]
    """Metrics for trackers, besides those of the trees."""
    critic: str | None
    """The critic to continue, or the model to make one from; None for an objective
    without a critic.
    """

    def counts(self) -> dict[str, int]:
        """The number of trees to learn from."""
        return {"trees": count_trees(self.trees)}

    def need(self, settings: Settings) -> MemoryNeed | None:
        """The memory that it needs with these settings."""
        return need_of_training(settings, self.model, self.trees, self.critic)


def plan(
    settings: Settings,
    run: Path,
    out: Path | None,
    *,
    model: str,
    tracking_dir: Path | None = None,
    beside: Mapping[str, float] = EMPTY,
) -> TrainPlan:
    """Plans an update of `model` on the trees and credit of `run`.

    It is written into `out`, by default into `run` itself. If `train.carry_optimizer`
    is set, the optimiser state next to the starting checkpoint is continued, if there
    is one. Raises UsageError if the output would replace the starting model, DataError
    without trees or credit.
    """
    target = RunDirectory(out or run)
    trees, credit = _learned_from(settings, RunDirectory(run))
    sources = [trees] if credit is None else [trees, credit]
    # A killed training must find its starting model again to resume.
    _refuse_replacing(target.checkpoint, model)
    refuse_adapter_beside_model(settings)
    check_model(model)
    sources += model_sources(model)
    settings = with_model(settings, model)
    critic = critic_of(settings, model)
    check_critic(critic, "train.options.critic", "--set train.options.critic=DIR")
    settings = with_adapters(settings, model, critic)
    # Moments lie beside the checkpoint that they belong to, whichever run that is.
    carried = trained_in(model).optimizer
    carry = _carries(settings) and is_there(carried)
    if carry:
        sources.append(carried)
    used = with_aggregate(settings, method_of(credit) if credit else None)
    _refuse_replacing(target.critic, critic)
    sources += model_sources(critic)
    of_critic = {} if critic is None else {"critic": critic}
    return TrainPlan(
        stage="train",
        run=target,
        settings=settings,
        sections=("train", "threads"),
        conditions={**_conditions(used, model), **of_critic},
        inputs={"trees": trees, "credit": credit, "model": model, **of_critic},
        sources=sources,
        outputs=target.trained,
        trees=trees,
        credit=credit,
        model=model,
        carried=carried,
        carry=carry,
        used=used,
        tracking_dir=tracking_dir or target.tracking,
        beside=beside,
        critic=critic,
    )


def _learned_from(settings: Settings, run: RunDirectory) -> tuple[Path, Path | None]:
    """The trees, and the credit of an objective that reads it. Raises DataError."""
    trees = run.existing_trees()
    if not checked_objective(settings).reads_credit:
        return trees, None
    return trees, run.existing_credit(settings.train.credit)


def with_adapters(settings: Settings, model: str, critic: str | None) -> Settings:
    """Settings with the shape of the adapters that a training continues.

    A critic's adapter has the shape of the policy's. Raises UsageError if it has not,
    and where the settings ask for another.
    """
    # A critic made from the policy gets an adapter of its own, of whatever shape is
    # set.
    if make_objective(settings.train.objective).trains_policy or is_critic(model):
        settings = with_adapter(settings, "train", model)
    # A critic from a policy's adapter is a new adapter of the policy's base.
    if critic is not None and is_critic(critic):
        with_adapter(settings, "train", critic, strict=True)
    return settings


def _carries(settings: Settings) -> bool:
    """Whether to continue an optimiser state; only that of a policy is stored."""
    trains_policy = make_objective(settings.train.objective).trains_policy
    return settings.train.carry_optimizer and trains_policy


def critic_of(settings: Settings, model: str) -> str | None:
    """The directory from which a training of `model` takes its critic.

    It is train.options.critic, the critic next to the model's checkpoint, or the model
    itself, from which a critic is made. None for an objective without a critic.
    """
    options = options_of(settings.train)
    if not isinstance(options, CriticOptions):
        return None
    if options.critic is not None:
        return options.critic
    # In a loop, the critic that was trained with the model lies beside it.
    beside = trained_in(model).critic
    return str(beside) if is_there(beside) else model


def trained_in(model: str) -> RunDirectory:
    """The run that trained a model: a loop's own checkpoint links to an iteration's."""
    place = Path(model)
    if place.is_symlink():
        place = place.parent / place.readlink()
    return RunDirectory(place.parent)


def _refuse_replacing(output: Path, start: str | None) -> None:
    """Raises UsageError if the output would overwrite the starting model."""
    if start is not None and output.resolve() == Path(start).resolve():
        raise UsageError(
            f"{output} is what training starts from; write elsewhere with -o DIR"
        )


def _refuse_stale_credit(plan: TrainPlan) -> None:
    """Raises DataError for credit of trees that were replaced or grown again since."""
    if plan.credit is None:
        return
    fault = RunDirectory(plan.trees.parent).other_trees(plan.credit)
    if fault:
        raise DataError(f"{plan.credit}: {fault}; run assign-credit with --overwrite")


def _conditions(used: Settings, model: str) -> dict[str, Any]:
    """What determines the result besides the sections of the settings."""
    of_template = template_condition(used)
    return {"model": model, "aggregate": used.train.aggregate, **of_template}


def perform(
    plan: TrainPlan,
    session: Session,
    warn: Callable[[str], None] | None = None,
) -> StageRecord:
    """Writes checkpoint/, optimizer.safetensors and metrics.jsonl.

    With `warn`, it is part of a loop; without, runs/latest is set to this run. The
    statistics record whether the optimiser was continued, and train.aggregate. Raises
    DataError for credit of other trees.
    """
    run = plan.run
    settings = plan.settings
    if session.done and is_there(run.checkpoint):
        run.forget_snapshot()
        return session.nothing_owed(session.done)
    _refuse_stale_credit(plan)
    session.progress.wait("loading model")
    objective = make_objective(settings.train.objective)
    _check_model(plan, objective)
    note = warn or session.progress.note
    note_lost_trees(plan.trees, None, session.progress)
    if _carries(settings) and not plan.carry:
        session.progress.note(f"fresh optimiser: no {plan.carried} to carry on")
    limit = settings.train.microbatch_limit
    fitting = fitting_settings(session, f"train.{limit}", plan.need, note).train
    changes = {limit: getattr(fitting, limit)}
    used = with_changes(plan.used, train=changes)
    from agentcli.records.free_memory import use_threads
    from agentcli.training.loop.job import Job

    use_threads(settings.threads)
    job = Job(
        model=plan.model,
        out=run.checkpoint,
        settings=used.train,
        seed=settings.seed,
        metrics=run.metrics,
        chat_template_kwargs=settings.policy.chat_template_kwargs,
        reference=settings.train.reference,
        critic=plan.critic,
        critic_out=run.critic,
        optimizer_in=plan.carried if plan.carry else None,
        optimizer_out=run.optimizer,
        progress=updates_bar(session.progress, "train"),
        ready=session.start,
        snapshot=run.snapshot,
        resumes=not session.invocation.overwrite,
        tracked=_tracked(plan, used.train),
    )
    statistics = {"optimizer_carried": plan.carry}
    statistics |= objective.train(job, plan.trees, plan.credit)
    statistics |= changes if used != plan.used else {}
    for line in _remarks(statistics, settings.train):
        note(line)
    # Later stages inherit the number that was asked for.
    session.settings = settings
    record = session.finish(latest=warn is None, statistics=statistics)
    run.forget_snapshot()
    return record


def _remarks(statistics: dict[str, Any], settings: TrainSettings) -> Iterator[str]:
    """What to know about the log-probabilities of sampler and trainer.

    Without figures, so that a loop says it once.
    """
    gap = statistics.get("logprob_gap")
    if gap is None:
        return  # an objective without a ratio to the sampler
    if settings.recomputes and not settings.recompute_logprobs:
        yield "train.recompute_logprobs: true, which other settings of train imply"
    if gap["mean"] >= WIDE_GAP and settings.importance_cap is None:
        yield (
            "warning: log-probabilities of sampler and trainer differ by "
            f"{WIDE_GAP:g} nats a token or more (gap_mean); weigh tokens by that: "
            "--set train.importance_cap=2"
        )


def _check_model(plan: TrainPlan, objective: Objective) -> None:
    """Refuses rows that were sampled from no model, then a model that is not there.

    A server's model is often not here, which is not why it cannot be trained.
    """
    if objective.reads_tokens:
        line, tree = next(checked_trees(plan.trees))
        check_sampled(tree, f"{plan.trees}:{line}")
    existing(plan.model)


def _tracked(plan: TrainPlan, used: TrainSettings) -> "Tracked | None":
    """What trackers get besides metrics: figures and trajectories of the trees."""
    from agentcli.reports.show.chat import sampled_texts
    from agentcli.training.loop.trackers import Sampled, Tracked

    tracking = plan.settings.tracking
    if not tracking.to:
        return None
    run = RunDirectory(plan.trees.parent)
    measured = figures(results_of_run(run), "rollout")
    texts = sampled_texts(read_records(plan.trees, Tree), tracking.samples)
    return Tracked(
        tracking=tracking,
        name=tracking.name or plan.run.path.resolve().name,
        folder=plan.tracking_dir,
        kind="train",
        settings=msgspec.to_builtins(used),
        sampled=Sampled({**plan.beside, **measured}, texts),
    )
