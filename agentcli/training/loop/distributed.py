"""The processes of one training; several are started only with torchrun.

On CPUs, `accelerate launch` announces several processes and starts one. That must not
go unnoticed.
"""

import os
from dataclasses import dataclass

import torch

from agentcli.errors import UsageError
from agentcli.records.processes import process_count, rank


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


def sum_over_ranks(values: torch.Tensor, processes: Processes) -> torch.Tensor:
    """The sum of the tensors of all ranks, on every rank."""
    if processes.size > 1:
        torch.distributed.all_reduce(values)
    return values


def max_over_ranks(values: torch.Tensor, processes: Processes) -> torch.Tensor:
    """The elementwise maximum of the tensors of all ranks, on every rank."""
    if processes.size > 1:
        torch.distributed.all_reduce(values, op=torch.distributed.ReduceOp.MAX)
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
    local = values.to(device)
    parts = [torch.empty_like(local) for _ in range(processes.size)]
    torch.distributed.all_gather(parts, local)
    return torch.stack(parts).cpu()


def wait_for_all(processes: Processes) -> None:
    """Returns when every rank has called it."""
    if processes.size > 1:
        torch.distributed.barrier()
