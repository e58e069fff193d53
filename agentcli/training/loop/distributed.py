"""The processes of one training, and a model that they share (FSDP2, sharding=fsdp).

Several processes are started only with torchrun. On CPUs, `accelerate launch` announces
several and starts one; that must not go unnoticed.

The weights of a layer are gathered when it runs and freed afterwards. Where training
computes in bfloat16 they are gathered so, which halves the traffic; gradients are
summed in float32. Gradients, moments and updates exist only for each process's share.
Therefore all processes must take part in every forward pass and every gathering of a
weight.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from agentcli.errors import AgentCliError, UsageError
from agentcli.records.processes import process_count, rank
from agentcli.records.training_settings import SftSettings, TrainSettings
from agentcli.training.loop.forward import computes_in_bf16


@dataclass(frozen=True, slots=True)
class Processes:
    """The rank of this process and their number, from the launcher's variables."""

    rank: int
    size: int

    @property
    def main(self) -> bool:
        """Whether this process writes files."""
        return self.rank == 0


def announced_processes() -> Processes:
    """The processes that the launcher announced.

    Raises UsageError if the launcher announced more processes than it started, or if
    one process sees several GPUs.
    """
    size = process_count()
    if "WORLD_SIZE" not in os.environ and "MASTER_ADDR" in os.environ:
        raise UsageError(
            "MASTER_ADDR is set but WORLD_SIZE is not: the launcher started one "
            "process only; use `torchrun --nproc-per-node N -m agentcli ...`, or "
            "unset MASTER_ADDR for one process"
        )
    if size == 1 and torch.cuda.device_count() > 1:
        # Trainer would split every batch across the GPUs (DataParallel).
        raise UsageError(
            f"{torch.cuda.device_count()} GPUs are visible to one process; use "
            "`torchrun --nproc-per-node N -m agentcli ...`, or make one visible with "
            "CUDA_VISIBLE_DEVICES=0"
        )
    return Processes(rank=rank(), size=size)


def check_processes(processes: Processes, started: int) -> None:
    """Raises UsageError unless all the processes that were announced were started."""
    if started != processes.size:
        raise UsageError(
            f"the launcher announced {processes.size} processes, the trainer found "
            f"{started}; use `torchrun --nproc-per-node {processes.size} -m agentcli "
            "...`"
        )


def sum_over_ranks(
    values: torch.Tensor, processes: Processes, maximum: bool = False
) -> torch.Tensor:
    """The sum, or the elementwise maximum, of the tensors of all ranks, on every rank."""
    if processes.size > 1:
        operations = torch.distributed.ReduceOp
        operation = operations.MAX if maximum else operations.SUM
        torch.distributed.all_reduce(values, op=operation)
    return values


def gather_from_ranks(
    values: torch.Tensor,
    processes: Processes,
    device: torch.device,
) -> torch.Tensor:
    """The tensors of all ranks, which have the same shape, stacked in rank order.

    The result is on every rank, on the CPU.
    """
    if processes.size == 1:
        return values.cpu()[None]
    # NCCL moves only what is on a GPU; random states are on the CPU.
    local = values.to(device)
    parts = [torch.empty_like(local) for _ in range(processes.size)]
    torch.distributed.all_gather(parts, local)
    return torch.stack(parts).cpu()


def wait_for_all(processes: Processes) -> None:
    """Returns when every rank has called it."""
    if processes.size > 1:
        torch.distributed.barrier()


def place(
    model: Any,
    settings: TrainSettings | SftSettings,
    processes: Processes,
    device: torch.device,
) -> None:
    """Moves the model, or this process's share of it, to the device.

    Shares of a full model are in float32, whatever the types of its weights are.
    """
    if settings.sharding == "none":
        model.to(device)
        return
    mesh = init_device_mesh(device.type, (processes.size,))
    layers = [
        module
        for module in model.modules()
        if isinstance(module, GradientCheckpointingLayer)
    ]
    share = partial(fully_shard, mesh=mesh, reshard_after_forward=True)
    policy = MixedPrecisionPolicy()
    if computes_in_bf16(device, settings.bf16):
        # As under autocast alone, hidden states between layers stay in float32: they
        # come from the embedding, which is gathered with the root.
        policy = MixedPrecisionPolicy(
            torch.bfloat16, torch.float32, cast_forward_inputs=False
        )
    adapted = hasattr(model, "peft_config")
    # Tied embeddings belong to one group, the root's. If a forward pass left whole
    # weights behind, the optimiser would get those, and they would never train.
    for layer in layers:
        # The base of an adapter has its precision already.
        if not adapted:
            _make_float32(layer)
        share(layer, mp_policy=policy)
    if not adapted:
        _make_float32(model)
    share(model)
    check_shared(model)
    network = model.get_base_model() if adapted else model
    # Otherwise transformers.Trainer would wrap the shares in DDP.
    network._is_distributed_loading_by_transformers = True


def _make_float32(module: nn.Module) -> None:
    """Converts the weights that are not shared yet; tied ones stay tied."""
    for parameter in module.parameters():
        if not isinstance(parameter, DTensor):
            parameter.data = parameter.data.float()


def is_sharded(model: nn.Module) -> bool:
    """Whether the model's weights are sharded across processes."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def check_shared(model: nn.Module) -> None:
    """Raises AgentCliError if some weight is not sharded."""
    for name, parameter in model.named_parameters():
        if not isinstance(parameter, DTensor):
            raise AgentCliError(
                f"sharding: fsdp, but {name} is not shared among the processes, and would "
                "not be trained; set train.sharding=none or sft.sharding=none"
            )


def whole_tensors(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """The tensors, with shares gathered one after another; all processes must call it.

    Returned only with `keep`, and those that were shared are on the CPU.
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
    """The full weights of a sharded model, or of its adapter, in the first process.

    All processes must call it. None for a model that is not sharded.
    """
    if not is_sharded(model):
        return None
    options = StateDictOptions(
        full_state_dict=True,
        cpu_offload=True,
        # The base of an adapter is on the disk already.
        ignore_frozen_params=hasattr(model, "peft_config"),
    )
    weights: dict[str, Any] = get_model_state_dict(model, options=options)
    # A tied weight is written once, by its first name, as in transformers.
    names: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), name)
    return {name: weights[name] for name in names.values() if name in weights}


def placed_like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A full tensor on the parameter's device; sharded if the parameter is."""
    local = tensor.to(parameter.device)
    if not isinstance(parameter, DTensor):
        return local
    # Every process has read the full tensor, so none has to send it.
    mesh, placements = parameter.device_mesh, parameter.placements
    return distribute_tensor(local, mesh, placements, src_data_rank=None)
