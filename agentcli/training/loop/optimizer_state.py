"""AdamW's moments between two `train` calls, as safetensors by parameter name: no
pickle, and restored bit for bit.

Only the state is kept. Learning rate, betas and weight decay are settings and come from
the call that goes on.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from agentcli.errors import DataError
from agentcli.training.loop.tensor_files import write_tensors

_PARTS = ("exp_avg", "exp_avg_sq", "step")


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: torch.nn.Module
) -> dict[str, Tensor]:
    """exp_avg/<parameter>, exp_avg_sq/<parameter> and step/<parameter> of every trained
    parameter that was updated.
    """
    return {
        f"{part}/{name}": torch.as_tensor(value)
        for name, parameter in model.named_parameters()
        for part, value in optimizer.state.get(parameter, {}).items()
        if part in _PARTS
    }


def put_optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: torch.nn.Module, tensors: dict[str, Tensor]
) -> int:
    """The reverse, into a fresh optimiser; gives the number of updates that the moments
    have seen.

    Raises DataError naming the first tensor that is missing, does not belong to this
    model or has another shape. No tensors at all are the state of an optimiser that was
    never used.
    """
    trained = {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    expected = {f"{part}/{name}" for name in trained for part in _PARTS}
    if tensors and (wrong := sorted(expected ^ set(tensors))):
        known = (
            "is missing" if wrong[0] in expected else "is no parameter of this model"
        )
        raise DataError(f"{wrong[0]} {known} ({len(wrong)} such)")
    updates = 0
    for name, parameter in trained.items() if tensors else ():
        state = {part: tensors[f"{part}/{name}"] for part in _PARTS}
        for part in ("exp_avg", "exp_avg_sq"):
            if state[part].shape != parameter.shape:
                raise DataError(
                    f"{part}/{name}: shape is {tuple(state[part].shape)}, the model's "
                    f"is {tuple(parameter.shape)}"
                )
        optimizer.state[parameter] = {
            part: value.to(parameter.device) for part, value in state.items()
        }
        updates = int(state["step"].item())
    return updates


def save_optimizer(
    optimizer: torch.optim.Optimizer, model: torch.nn.Module, path: Path
) -> None:
    """Write exp_avg, exp_avg_sq and step of every trained parameter, atomically."""
    write_tensors(path, optimizer_tensors(optimizer, model))


def load_optimizer(
    optimizer: torch.optim.Optimizer, model: torch.nn.Module, path: Path
) -> int:
    """Put saved moments into a fresh optimiser; gives the number of updates they have
    seen.

    Raises DataError when the file cannot be read or does not belong to this model.
    """
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
