"""AdamW's moments between two `train` calls, as safetensors by parameter name.

There is no pickle, and they are restored bit for bit. Learning rate, betas and weight
decay are not kept: they are settings of the call that continues.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from agentcli.errors import DataError
from agentcli.records.regular import refuse_irregular
from agentcli.training.loop.tensor_files import write_tensors

_PARTS = ("exp_avg", "exp_avg_sq", "step")


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
            if part in _PARTS:
                tensors[f"{part}/{name}"] = torch.as_tensor(value)
    return tensors


def put_optimizer_tensors(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    tensors: dict[str, Tensor],
) -> int:
    """Puts moments into a fresh optimiser. Returns the updates that they have seen.

    Raises DataError naming the first tensor that is missing, does not belong to this
    model or has another shape.
    """
    if not tensors:
        return 0  # an optimiser that was never used
    trained = trained_parameters(model)
    expected = {f"{part}/{name}" for name in trained for part in _PARTS}
    wrong = sorted(expected ^ set(tensors))
    if wrong:
        missing = wrong[0] in expected
        fault = "is missing" if missing else "is not a parameter of this model"
        raise DataError(f"{wrong[0]} {fault} ({len(wrong)} such)")
    updates = 0
    for name, parameter in trained.items():
        state = {part: tensors[f"{part}/{name}"] for part in _PARTS}
        for part in ("exp_avg", "exp_avg_sq"):
            shape = state[part].shape
            if shape != parameter.shape:
                raise DataError(
                    f"{part}/{name}: shape is {tuple(shape)}, the model's is "
                    f"{tuple(parameter.shape)}"
                )
        updates = int(state["step"].item())
        optimizer.state[parameter] = {
            part: value.to(parameter.device) for part, value in state.items()
        }
    return updates


def save_optimizer(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    path: Path,
) -> None:
    """Writes the moments of every updated parameter, atomically."""
    write_tensors(path, optimizer_tensors(optimizer, model))


def load_optimizer(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    path: Path,
) -> int:
    """Puts saved moments into a fresh optimiser. Returns the updates they have seen.

    Raises DataError when the file cannot be read or does not belong to this model.
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
