"""All objectives of `train` by name, imported when asked for.

An objective is a class that says what it reads and how it trains; its folder holds the
rest. Nothing heavy is imported before `train` is called. An installed package adds such
a class under the entry-point group `agentcli.objectives`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class NoOptions(Section):
    """The options of an objective that has none."""


class Objective(ABC):
    """One way to learn from the trees of a rollout."""

    name: ClassVar[str]
    options: ClassVar[type[Section]] = NoOptions
    """The class of train.options: settings that only this objective has."""
    metrics: ClassVar[type[MetricsLine]]
    """A line of metrics.jsonl."""
    reads_credit: ClassVar[bool] = True
    """Whether it learns from credit, which then weighs the steps."""
    takes_ratios: ClassVar[bool] = True
    """Whether it takes a ratio to the policy that sampled. Greedy responses have none."""
    trains_policy: ClassVar[bool] = True
    """Whether its checkpoint is a policy. Only such an objective can be a loop's."""
    unread: ClassVar[tuple[str, ...]] = ()
    """The settings of `train` that it does not read."""

    @abstractmethod
    def train(
        self,
        job: Job[TrainSettings],
        trees: Path,
        credit: Path | None,
    ) -> dict[str, Any]:
        """Trains as the job says. Returns the statistics of the manifest.

        `credit` is None unless the objective reads it.
        """

    def needed(self, credit: Path | None, command: str) -> Path:
        """The credit to learn from. Raises UsageError naming the command that gives it."""
        if credit is None:
            raise UsageError(
                f"train.objective {self.name}: reads credit; write some with: {command}"
            )
        return credit

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


def options_of(settings: TrainSettings) -> Section:
    """The settings of train.options, typed and complete.

    Raises UsageError for an unknown objective or key, and for a bad value.
    """
    name = settings.objective
    kind = make_objective(name).options
    return read_options(settings.options, kind, "train.options", f"objective {name}")
