"""The objective `dpo`: pairs of a success and a failure (ETO, Song et al. 2024)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.records.section import Count, Positive, Section
from agentcli.records.training_settings import TrainSettings
from agentcli.training.objectives import Objective
from agentcli.training.preference.metrics import DpoMetrics

if TYPE_CHECKING:
    from agentcli.training.loop.job import Job


class DpoOptions(Section, kw_only=True):
    """Which pairs are learned from, and how far the policy may move."""

    beta: Positive = 0.1
    """DPO's inverse temperature; train.beta is the policy gradient's."""
    pairs_per_task: Count = 8
    """Most (success, failure) pairs taken from one tree."""
    max_length: Count = 32768
    """Longest trajectory of a pair, prompts and responses of all its steps, in tokens;
    a longer pair is left out and counted.
    """


class DirectPreference(Objective):
    """Learns from outcomes alone, with the start of training as its reference."""

    name = "dpo"
    options = DpoOptions
    metrics = DpoMetrics
    reads_credit = False
    takes_ratios = False
    unread = (
        "credit",
        "update",
        "clip",
        "beta",
        "aggregate",
        "rows_per_microbatch",
        "recompute_logprobs",
    )

    def train(
        self,
        job: Job[TrainSettings],
        trees: Path,
        credit: Path | None,
    ) -> dict[str, Any]:
        """Train on the preference pairs."""
        from agentcli.training.preference.train import train_dpo

        return train_dpo(job, trees)
