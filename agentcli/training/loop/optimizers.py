"""The optimisers of `train`: AdamW, and that of bitsandbytes with moments in 8 bits."""

from collections.abc import Sequence
from typing import Any

import torch

from agentcli.errors import UsageError
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.quantised import require_bitsandbytes


def check_optimizer(settings: TrainSettings) -> None:
    """Refuses an optimiser that cannot be had.

    Raises MissingError without bitsandbytes, UsageError where it would be sharded.
    """
    if settings.optimizer == "adamw":
        return
    if settings.sharding != "none":
        raise UsageError(
            f"train.optimizer: {settings.optimizer} keeps moments of whole weights; set "
            "train.optimizer=adamw or train.sharding=none"
        )
    require_bitsandbytes(f"train.optimizer: {settings.optimizer}")


def make_optimizer(
    settings: TrainSettings, groups: Sequence[dict[str, Any]]
) -> torch.optim.Optimizer:
    """The optimiser of train.optimizer over groups of parameters."""
    options: dict[str, Any] = {
        "lr": settings.learning_rate,
        "betas": settings.adam_betas,
    }
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(list(groups), fused=True, **options)
    from bitsandbytes.optim import AdamW8bit

    optimizer: torch.optim.Optimizer = AdamW8bit(list(groups), **options)
    return optimizer


def fill_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Gives a gradient of 0, before every step, to parameters that no row reached.

    A model that sees may have layers behind the one that it looks through. So every
    parameter has moments, and a snapshot holds them all.
    """

    def fill(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)

    optimizer.register_step_pre_hook(fill)
