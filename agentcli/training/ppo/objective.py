"""The objective `ppo`: the policy gradient, and a critic that learns the returns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.records.section import Positive
from agentcli.records.training_settings import TrainSettings
from agentcli.training.critic.options import CriticOptions
from agentcli.training.policy_gradient.objective import PolicyGradient
from agentcli.training.ppo.metrics import PpoMetrics

if TYPE_CHECKING:
    from agentcli.training.loop.job import Job


class PpoOptions(CriticOptions, kw_only=True):
    """The critic, and what it does to the advantages."""

    value_clip: Positive | None = None
    """The farthest that an update may move V(s) and still lower the critic's loss; None:
    as far as it likes.
    """
    whiten: bool = True
    """Advantages are shifted and scaled over all rows of the training to mean 0 and
    standard deviation 1.
    """


class ProximalPolicy(PolicyGradient):
    """Learns from the credit ppo, whose part `return` is the critic's target."""

    name = "ppo"
    options = PpoOptions
    metrics = PpoMetrics

    def train(
        self,
        job: Job[TrainSettings],
        trees: Path,
        credit: Path | None,
    ) -> dict[str, Any]:
        """Train policy and critic on the credited rows."""
        from agentcli.training.ppo.train import train_ppo

        credit = self.needed(credit, "agentcli assign-credit --method ppo")
        return {"aggregate": job.settings.aggregate, **train_ppo(job, trees, credit)}
