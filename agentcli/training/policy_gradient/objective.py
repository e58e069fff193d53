"""The objective `policy-gradient`: a clipped surrogate per step, with a KL penalty."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from agentcli.records.training_settings import TrainSettings
from agentcli.training.objectives import Objective
from agentcli.training.policy_gradient.metrics import TrainMetrics

if TYPE_CHECKING:
    from agentcli.training.loop.metrics import MetricsLine


class PolicyGradient(Objective):
    """Learns from credit, which arrives as a number per step."""

    name = "policy-gradient"
    metrics: ClassVar[type[MetricsLine]] = TrainMetrics
    trainer = "agentcli.training.policy_gradient.train:train_policy"
    packs = True
    shards = True
    sees = True

    def anchored(self, settings: TrainSettings) -> bool:
        """The KL penalty is against the loop's start."""
        return settings.beta > 0
