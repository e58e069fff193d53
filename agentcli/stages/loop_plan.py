"""The plan of a loop: what `agentcli run` would do."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from agentcli.credit.registry import known
from agentcli.environments.protocol import World
from agentcli.errors import UsageError
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.stages.credit import credit_of
from agentcli.stages.evaluate import EvaluationPlan, plan_evaluation
from agentcli.stages.iterations import iteration_folder
from agentcli.stages.panels import iteration_tasks, panel_for
from agentcli.stages.plan import with_changes
from agentcli.stages.sampling import (
    SECTIONS,
    SamplingPlan,
    check_sampling,
    refuse_shard,
    sampling_inputs,
    sampling_sources,
)
from agentcli.stages.train import (
    checked_objective,
    critic_of,
    refuse_adapter_beside_model,
    refuse_greedy,
    with_adapters,
    with_aggregate,
)
from agentcli.stages.update import training_processes


class StartingModels(NamedTuple):
    """The models that an iteration starts from."""

    model: str
    critic: str | None
    """None if the objective has no critic."""


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
class LoopPlan(SamplingPlan):
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
    refuse_shard(settings, "run")
    world = check_sampling(settings, model)
    settings = with_adapters(settings, model, first_critic(settings, model))
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
        sections=(*SECTIONS, "credit", "train", "threads"),
        inputs=sampling_inputs(settings, model),
        sources=sampling_sources(settings, model),
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


def plan_inner_evaluation(
    settings: Settings, folder: Path, model: str, world: World
) -> EvaluationPlan:
    """The evaluation of one iteration's policy, as `agentcli eval` would plan it."""
    # A panel file is for training; here evaluation.split determines the tasks.
    settings = with_changes(settings, environment={"panel": None})
    return plan_evaluation(settings, folder, model=model, world=world)
