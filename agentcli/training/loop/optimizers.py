"""The optimisers of `train`, and their moments between two calls.

AdamW, or bitsandbytes' AdamW with 8-bit moments. Moments are stored as safetensors by
parameter name: no pickle is involved, and they are restored bit for bit. Learning rate,
betas and weight decay are not stored: they are settings of the call that continues.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from agentcli.errors import DataError, UsageError
from agentcli.records.regular import refuse_irregular
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.checkpoints import require_bitsandbytes, write_tensors
from agentcli.training.loop.distributed import placed_like, whole_tensors


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


_PARTS = ("exp_avg", "exp_avg_sq", "step")
_OF_8_BITS = ("state1", "state2", "step")
"""State tensors of bitsandbytes' AdamW8bit; small weights have unquantised moments."""
_OF_BLOCKS = ("absmax1", "absmax2", "qmap1", "qmap2")
"""Scales of quantised moments, and the values of their 256 levels."""


def trained_parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters that require a gradient, by name."""
    named = model.named_parameters()
    return {name: parameter for name, parameter in named if parameter.requires_grad}


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: torch.nn.Module
) -> dict[str, Tensor]:
    """The moments of every updated parameter, named `<part>/<parameter>`."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for part, value in optimizer.state.get(parameter, {}).items():
            if part in {*_PARTS, *_OF_8_BITS}:
                tensors[f"{part}/{name}"] = torch.as_tensor(value)
            elif part in _OF_BLOCKS:
                # All weights share one tensor of levels, and a file may not contain it
                # twice.
                tensors[f"{part}/{name}"] = value.clone()
    return tensors


def put_optimizer_tensors(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    tensors: dict[str, Tensor],
) -> int:
    """Loads moments into a new optimiser. Returns the number of its earlier updates.

    Raises DataError naming the first tensor that is missing, does not belong to this
    model or has another shape.
    """
    if not tensors:
        return 0  # an optimiser that was never used
    trained = trained_parameters(model)
    in_8_bits = not isinstance(optimizer, torch.optim.AdamW)
    parts = _OF_8_BITS if in_8_bits else _PARTS
    expected = {f"{part}/{name}" for name in trained for part in parts}
    if in_8_bits:
        expected |= _scales(trained, tensors)
    wrong = sorted(expected ^ set(tensors))
    if wrong:
        missing = wrong[0] in expected
        fault = "is missing" if missing else "is not a parameter of this model"
        raise DataError(f"{wrong[0]} {fault} ({len(wrong)} such)")
    updates = 0
    for name, parameter in trained.items():
        state: dict[str, Any] = {}
        for part in parts[:2]:
            moments = tensors[f"{part}/{name}"]
            if moments.shape != parameter.shape:
                raise DataError(
                    f"{part}/{name}: shape is {tuple(moments.shape)}, the model's is "
                    f"{tuple(parameter.shape)}"
                )
            state[part] = placed_like(moments, parameter)
        for part in _OF_BLOCKS:
            if f"{part}/{name}" in expected:
                state[part] = tensors[f"{part}/{name}"].to(parameter.device)
        step = tensors[f"step/{name}"]
        updates = int(step.item())
        # bitsandbytes counts updates with a plain number.
        state["step"] = updates if in_8_bits else step.to(parameter.device)
        optimizer.state[parameter] = state
    return updates


def _scales(names: Iterable[str], tensors: dict[str, Tensor]) -> set[str]:
    """The names of the scales of these parameters' quantised moments."""
    scales = set()
    for name in names:
        moments = tensors.get(f"state1/{name}")
        if moments is not None and moments.dtype == torch.uint8:
            scales |= {f"{part}/{name}" for part in _OF_BLOCKS}
    return scales


def save_optimizer(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    path: Path,
    main: bool = True,
) -> None:
    """Writes the moments of every updated parameter, atomically.

    In a sharded training all processes call it; the main one writes.
    """
    tensors = whole_tensors(optimizer_tensors(optimizer, model), keep=main)
    if main:
        write_tensors(path, tensors)


def load_optimizer(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    path: Path,
) -> int:
    """Loads saved moments into a new optimiser. Returns its number of earlier updates.

    Raises DataError if the file cannot be read or does not belong to this model.
    """
    refuse_irregular(path)
    try:
        return put_optimizer_tensors(optimizer, model, load_file(path))
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"{path}: no optimiser state can be read there ({error}); set "
            "train.carry_optimizer=false"
        ) from error
    except DataError as error:
        raise DataError(
            f"{path}: {error}; set train.carry_optimizer=false to start afresh"
        ) from error
