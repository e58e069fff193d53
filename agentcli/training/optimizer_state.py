"""AdamW's moments between two `train` calls, as safetensors by parameter name: no pickle, and restored bit for bit.

Only the state is kept. Learning rate, betas and weight decay are settings and come from the call that goes on.
"""

import os
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from agentcli.errors import DataError

_PARTS = ("exp_avg", "exp_avg_sq", "step")


def save_optimizer(optimizer: torch.optim.Optimizer, model: torch.nn.Module, path: Path) -> None:
    """Write exp_avg, exp_avg_sq and step of every trained parameter, atomically."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for part, value in optimizer.state.get(parameter, {}).items():
            if part in _PARTS:
                tensors[f"{part}/{name}"] = torch.as_tensor(value).detach().cpu().contiguous()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    save_file(tensors, temporary)
    os.replace(temporary, path)


def load_optimizer(optimizer: torch.optim.Optimizer, model: torch.nn.Module, path: Path) -> int:
    """Put saved moments into a fresh optimiser; gives the number of updates they have seen.

    Raises DataError when the file cannot be read or does not belong to this model.
    """
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"{path}: no optimiser state can be read there ({error}); set train.carry_optimizer=false"
        ) from error
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    expected = {f"{part}/{name}" for name in trained for part in _PARTS}
    if tensors and (wrong := sorted(expected ^ set(tensors))):
        known = "is missing" if wrong[0] in expected else "is no parameter of this model"
        raise DataError(
            f"{path}: {wrong[0]} {known} ({len(wrong)} such); set train.carry_optimizer=false to start afresh"
        )
    updates = 0
    for name, parameter in trained.items() if tensors else ():
        state = {part: tensors[f"{part}/{name}"] for part in _PARTS}
        for part in ("exp_avg", "exp_avg_sq"):
            if state[part].shape != parameter.shape:
                raise DataError(
                    f"{path}: {part}/{name}: shape is {tuple(state[part].shape)}, the model's is {tuple(parameter.shape)}; "
                    "set train.carry_optimizer=false to start afresh"
                )
        optimizer.state[parameter] = {part: value.to(parameter.device) for part, value in state.items()}
        updates = int(state["step"].item())
    return updates
