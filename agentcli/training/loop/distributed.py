"""Which process of how many this is, and the one way several are started: torchrun.

`accelerate launch` on CPUs says that it starts several processes and starts one; that must not go unnoticed.
"""

import os
from dataclasses import dataclass

import torch

from agentcli.errors import UsageError


@dataclass(frozen=True, slots=True)
class World:
    """Rank and size, as the launcher's environment variables say."""

    rank: int
    size: int

    @property
    def main(self) -> bool:
        """Whether this process writes files."""
        return self.rank == 0


def announced_world() -> World:
    """The world that the launcher announced. Raises UsageError for a launcher that announced more than it started."""
    size = os.environ.get("WORLD_SIZE")
    if size is None and "MASTER_ADDR" in os.environ:
        raise UsageError(
            "MASTER_ADDR is set but WORLD_SIZE is not: the launcher started one process only; use "
            "`torchrun --nproc-per-node N -m agentcli ...`, or unset MASTER_ADDR for one process"
        )
    if int(size or 1) == 1 and torch.cuda.device_count() > 1:
        raise UsageError(
            f"{torch.cuda.device_count()} GPUs are visible to one process; use `torchrun --nproc-per-node N -m agentcli ...`, "
            "or make one visible with CUDA_VISIBLE_DEVICES=0"
        )
    return World(rank=int(os.environ.get("RANK", 0)), size=int(size or 1))


def check_world(world: World, processes: int) -> None:
    """Raises UsageError unless the trainer found as many processes as were announced."""
    if processes != world.size:
        raise UsageError(
            f"the launcher announced {world.size} processes, the trainer found {processes}; use `torchrun --nproc-per-node "
            f"{world.size} -m agentcli ...`"
        )


def sum_over_ranks(values: torch.Tensor, world: World) -> torch.Tensor:
    """The sum of every rank's tensor, on every rank."""
    if world.size > 1:
        torch.distributed.all_reduce(values)
    return values


def max_over_ranks(values: torch.Tensor, world: World) -> torch.Tensor:
    """The elementwise maximum of every rank's tensor, on every rank."""
    if world.size > 1:
        torch.distributed.all_reduce(values, op=torch.distributed.ReduceOp.MAX)
    return values


def gather_from_ranks(values: torch.Tensor, world: World, device: torch.device) -> torch.Tensor:
    """Every rank's tensor, all of one shape, stacked in the order of ranks, on every rank, on the CPU."""
    if world.size == 1:
        return values.cpu()[None]
    own = values.to(device)
    parts = [torch.empty_like(own) for _ in range(world.size)]
    torch.distributed.all_gather(parts, own)
    return torch.stack(parts).cpu()


def wait_for_all(world: World) -> None:
    """Returns when every rank is here."""
    if world.size > 1:
        torch.distributed.barrier()
