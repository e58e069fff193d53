"""The objective `policy-gradient`: a clipped surrogate per step, with a KL penalty."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from agentcli.records.training_settings import TrainSettings
from agentcli.training.objectives import Objective
from agentcli.training.policy_gradient.metrics import TrainMetrics

if TYPE_CHECKING:
    from agentcli.training.loop.job import Job
    from agentcli.training.loop.metrics import MetricsLine


class PolicyGradient(Objective):
    """Learns from credit, which arrives as a number per step."""

    name = "policy-gradient"
    metrics: ClassVar[type[MetricsLine]] = TrainMetrics

    def train(
        self,
        job: Job[TrainSettings],
        trees: Path,
        credit: Path | None,
    ) -> dict[str, Any]:
        """Train on the credited rows."""
        from agentcli.training.policy_gradient.train import train_policy

        credit = self.needed(credit, "agentcli assign-credit RUN")
        return {"aggregate": job.settings.aggregate, **train_policy(job, trees, credit)}

    def anchored(self, settings: TrainSettings) -> bool:
        """The KL penalty is against the loop's start."""
        return settings.beta > 0
