"""The objective `dpo`: pairs of a success and a failure (ETO, Song et al. 2024)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.records.training_settings import TrainSettings
from agentcli.training.objectives import Objective
from agentcli.training.preference.metrics import DpoMetrics

if TYPE_CHECKING:
    from agentcli.training.loop.job import Job


class DirectPreference(Objective):
    """Learns from outcomes alone, with the start of training as its reference."""

    name = "dpo"
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
