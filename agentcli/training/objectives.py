"""The registry of all objectives of `train`; each is imported only when used.

An objective is a class that declares what it reads and how it trains; its folder
contains the rest. Nothing heavy is imported before `train` is called. An installed
package adds such a class under the entry-point group `agentcli.objectives`.
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
"""Settings by which the caller chose the inputs that it passes to the objective."""
OF_SURROGATE = (
    *("clip_high", "dual_clip", "ratio", "importance_cap"),
    *("tokens_per_response", "float32_head"),
)
"""Settings that only the surrogate of policy-gradient and ppo has."""


class Objective:
    """One way to learn from the trees of a rollout."""

    name: ClassVar[str]
    options: ClassVar[type[Section]] = Section
    """The class of train.options: settings of this objective alone. Section itself has
    no settings.
    """
    metrics: ClassVar[type[MetricsLine]]
    """The class of its metrics.jsonl lines."""
    trainer: ClassVar[str]
    """Its training function as module:function. The function gets the job, the trees
    and (if it reads credit) the credit, and returns the statistics for the manifest.
    """
    reads_credit: ClassVar[bool] = True
    """Whether it learns from credit, which then weights the steps."""
    credit_maker: ClassVar[str] = "agentcli assign-credit RUN"
    """The command that writes the credit it reads."""
    takes_ratios: ClassVar[bool] = True
    """Whether its loss uses the ratio to the sampling policy, which greedy responses
    lack.
    """
    reads_tokens: ClassVar[bool] = True
    """Whether it learns from the tokens that were sampled, and not from texts."""
    trains_policy: ClassVar[bool] = True
    """Whether its checkpoint is a policy. Only then can a loop use the objective."""
    packs: ClassVar[bool] = False
    """Whether rows of an update may share a sequence (train.packing)."""
    shards: ClassVar[bool] = False
    """Whether its model may be sharded across processes (train.sharding)."""
    sees: ClassVar[bool] = False
    """Whether it can train a vision model on pictures."""
    unread: ClassVar[tuple[str, ...]] = ()
    """The settings of `train` that it ignores."""

    def train(
        self, job: Job[TrainSettings], trees: Path, credit: Path | None
    ) -> dict[str, Any]:
        """Trains as the job says. Returns the statistics for the manifest.

        Raises UsageError if credit is required and missing, and for a vision model if
        the objective supports only text.
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
        """Whether the initial model is the reference in all iterations of a loop."""
        return False


def objective_names() -> list[str]:
    """Names of the built-in and installed objectives, sorted."""
    return REGISTRY.names()


def make_objective(name: str) -> Objective:
    """The objective with this name. Raises UsageError with the nearest name."""
    objective: Objective = REGISTRY.load(name)()
    return objective


def not_read(settings: TrainSettings) -> set[str]:
    """The settings that cannot affect the result of a training."""
    return {*HANDED_OVER, *make_objective(settings.objective).unread}


def options_of(settings: TrainSettings) -> Section:
    """The settings of train.options, typed and complete.

    Raises UsageError for an unknown objective or key, and for a bad value.
    """
    name = settings.objective
    kind = make_objective(name).options
    return read_options(settings.options, kind, "train.options", f"objective {name}")
