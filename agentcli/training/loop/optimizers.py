"""The optimisers of `train`: AdamW, and bitsandbytes' AdamW with 8-bit moments."""

from collections.abc import Sequence
from typing import Any

import torch

from agentcli.errors import UsageError
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.quantised import require_bitsandbytes


def check_optimizer(settings: TrainSettings) -> None:
    """Checks that the chosen optimiser can be used.

    Raises MissingError without bitsandbytes, UsageError if it would have to be sharded.
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
    """Creates the optimiser of train.optimizer for groups of parameters."""
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
    """Before every step, sets the missing gradients of parameters to 0.

    A vision model may have layers after the one whose output is used. This way every
    parameter has moments, and a snapshot contains all of them.
    """

    def fill(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)

    optimizer.register_step_pre_hook(fill)
