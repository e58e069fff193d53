"""A model of which every process keeps a share (FSDP2, sharding=fsdp).

The weights of a layer are gathered while it is run, and freed behind it. Gradients,
moments and updates are of the shares. So every forward pass, and every gathering of a
weight, is one that all processes make together.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from agentcli.errors import AgentCliError
from agentcli.records.training_settings import SftSettings, TrainSettings
from agentcli.training.loop.distributed import Processes


def place(
    model: Any,
    settings: TrainSettings | SftSettings,
    processes: Processes,
    device: torch.device,
) -> None:
    """Moves the model, or this process's share of it, to the device."""
    if settings.sharding == "none":
        model.to(device)
        return
    mesh = init_device_mesh(device.type, (processes.size,))
    layers = [
        module
        for module in model.modules()
        if isinstance(module, GradientCheckpointingLayer)
    ]
    # Tied embeddings belong to one group, that of the root. Whole weights left behind by
    # a forward pass would be what the optimiser is given, and would never train.
    for part in (*layers, model):
        fully_shard(part, mesh=mesh, reshard_after_forward=True)
    check_shared(model)
    network = model.get_base_model() if hasattr(model, "peft_config") else model
    # Else transformers.Trainer would wrap the shares in DDP.
    network._is_distributed_loading_by_transformers = True


def is_sharded(model: nn.Module) -> bool:
    """Whether processes share the model's weights."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def check_shared(model: nn.Module) -> None:
    """Raises AgentCliError for a weight that every process holds for itself."""
    for name, parameter in model.named_parameters():
        if not isinstance(parameter, DTensor):
            raise AgentCliError(
                f"sharding: fsdp, but {name} is not shared among the processes, and would "
                "not be trained; set train.sharding=none or sft.sharding=none"
            )


def whole_tensors(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """The tensors, shares gathered one after another; all processes call it.

    Only with `keep` they are returned, on the CPU where they were shared.
    """
    kept = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, DTensor):
            whole = tensor.full_tensor()
            tensor = whole.cpu() if keep else whole
        if keep:
            kept[name] = tensor
    return kept


def whole_weights(model: nn.Module) -> dict[str, Tensor] | None:
    """The weights of a sharded model, or of its adapter, in the first process.

    All processes call it. None for a model that is not sharded.
    """
    if not is_sharded(model):
        return None
    options = StateDictOptions(
        full_state_dict=True,
        cpu_offload=True,
        ignore_frozen_params=hasattr(model, "peft_config"),
    )
    weights: dict[str, Any] = get_model_state_dict(model, options=options)
    # A tied weight is written once, by its first name, as transformers does it.
    names: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), name)
    return {name: weights[name] for name in names.values() if name in weights}


def placed_like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor on the parameter's device, as a share where it is one."""
    local = tensor.to(parameter.device)
    if not isinstance(parameter, DTensor):
        return local
    # Every process has read the whole; none has to send it.
    mesh, placements = parameter.device_mesh, parameter.placements
    return distribute_tensor(local, mesh, placements, src_data_rank=None)
