"""The objective `process-reward`: a model that scores steps, learned from credit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.records.section import Section
from agentcli.records.training_settings import TrainSettings
from agentcli.training.critic.options import Head
from agentcli.training.objectives import Objective
from agentcli.training.process_reward.metrics import ProcessRewardMetrics

if TYPE_CHECKING:
    from agentcli.training.loop.job import Job


class ProcessRewardOptions(Section, kw_only=True):
    """What is learned, and by which head."""

    target: str = "reward"
    """The part of the credit that is learned. reward, of grpo and others: the share of
    success below the step, a Monte Carlo estimate of its worth.
    """
    head: Head = "linear"
    """The head of a model that is made anew: linear or mlp. At first it says 0."""


class ProcessReward(Objective):
    """Learns one part of the credit, read at the end of a step's response."""

    name = "process-reward"
    options = ProcessRewardOptions
    metrics = ProcessRewardMetrics
    takes_ratios = False
    trains_policy = False
    unread = (
        *("update", "beta", "clip", "reference", "aggregate"),
        *("recompute_logprobs", "carry_optimizer"),
    )

    def train(
        self,
        job: Job[TrainSettings],
        trees: Path,
        credit: Path | None,
    ) -> dict[str, Any]:
        """Train a process reward model on the credited steps."""
        from agentcli.training.process_reward.train import train_process_reward

        credit = self.needed(credit, "agentcli assign-credit RUN")
        return train_process_reward(job, trees, credit)
