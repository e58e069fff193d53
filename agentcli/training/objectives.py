"""All objectives of `train` by name, imported when asked for.

An objective is a class that says what it reads and how it trains; its folder holds the
rest. Nothing heavy is imported before `train` is called. An installed package adds such
a class under the entry-point group `agentcli.objectives`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from agentcli.errors import UsageError
from agentcli.records.options import read_options
from agentcli.records.section import Section
from agentcli.records.training_settings import TrainSettings
from agentcli.registry import Registry

if TYPE_CHECKING:
    from agentcli.training.loop.job import Job
    from agentcli.training.loop.metrics import MetricsLine

OBJECTIVES = {
    "policy-gradient": "agentcli.training.policy_gradient.objective:PolicyGradient",
    "dpo": "agentcli.training.preference.objective:DirectPreference",
    "offline-ppo": "agentcli.training.offline_ppo.objective:OfflinePpo",
    "process-reward": "agentcli.training.process_reward.objective:ProcessReward",
    "ppo": "agentcli.training.ppo.objective:ProximalPolicy",
}

REGISTRY = Registry(
    "agentcli.objectives", OBJECTIVES, key="train.objective", kind="objective"
)


HANDED_OVER = ("credit", "reference", "carry_optimizer", "objective")
"""Settings that say how the caller chose what it hands over."""


class Objective:
    """One way to learn from the trees of a rollout."""

    name: ClassVar[str]
    options: ClassVar[type[Section]] = Section
    """The class of train.options: settings that only this objective has. The base of
    all sections has none.
    """
    metrics: ClassVar[type[MetricsLine]]
    """A line of metrics.jsonl."""
    trainer: ClassVar[str]
    """The place of its training function, module:function. It is given the job, the
    trees and the credit, where that is read, and returns the statistics of the manifest.
    """
    reads_credit: ClassVar[bool] = True
    """Whether it learns from credit, which then weighs the steps."""
    credit_maker: ClassVar[str] = "agentcli assign-credit RUN"
    """The command that writes the credit."""
    takes_ratios: ClassVar[bool] = True
    """Whether it takes a ratio to the policy that sampled. Greedy responses have none."""
    trains_policy: ClassVar[bool] = True
    """Whether its checkpoint is a policy. Only such an objective can be a loop's."""
    packs: ClassVar[bool] = False
    """Whether rows of an update may share a sequence (train.packing)."""
    shards: ClassVar[bool] = False
    """Whether processes may share its model (train.sharding)."""
    sees: ClassVar[bool] = False
    """Whether it trains a model that sees, on pictures."""
    unread: ClassVar[tuple[str, ...]] = ()
    """The settings of `train` that it does not read."""

    def train(
        self, job: Job[TrainSettings], trees: Path, credit: Path | None
    ) -> dict[str, Any]:
        """Trains as the job says. Returns the statistics of the manifest.

        Raises UsageError without the credit that the objective reads, and for a model
        that sees where the objective reads texts only.
        """
        from agentcli.policies.load import sees

        if not self.sees and sees(job.model):
            raise UsageError(
                f"train.objective {self.name}: {job.model} sees, and only "
                "policy-gradient trains such a model; set "
                "train.objective=policy-gradient"
            )
        inputs = [trees]
        if credit is not None:
            inputs.append(credit)
        elif self.reads_credit:
            raise UsageError(
                f"train.objective {self.name}: reads credit; write some with: "
                f"{self.credit_maker}"
            )
        module, _, function = self.trainer.partition(":")
        train = getattr(import_module(module), function)
        statistics: dict[str, Any] = train(job, *inputs)
        return statistics

    def anchored(self, settings: TrainSettings) -> bool:
        """Whether a loop's start is the reference of all its iterations."""
        return False


def objective_names() -> list[str]:
    """Names of the built-in and installed objectives, sorted."""
    return REGISTRY.names()


def make_objective(name: str) -> Objective:
    """The objective of this name. Raises UsageError with the nearest name."""
    objective: Objective = REGISTRY.load(name)()
    return objective


def not_read(settings: TrainSettings) -> set[str]:
    """The settings on which a training does not depend by itself."""
    return {*HANDED_OVER, *make_objective(settings.objective).unread}


def options_of(settings: TrainSettings) -> Section:
    """The settings of train.options, typed and complete.

    Raises UsageError for an unknown objective or key, and for a bad value.
    """
    name = settings.objective
    kind = make_objective(name).options
    return read_options(settings.options, kind, "train.options", f"objective {name}")
