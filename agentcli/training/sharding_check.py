"""Refuses a model that cannot be sharded across the processes of a training.

Does not import torch, so that a plan can call it.
"""

from agentcli.errors import UsageError
from agentcli.records.training_settings import SftSettings, TrainSettings


def check_sharding(
    section: str, settings: TrainSettings | SftSettings, processes: int
) -> None:
    """Raises UsageError if the sharding of `section` (train or sft) has no effect."""
    if settings.sharding == "none":
        return
    if processes == 1:
        raise UsageError(
            f"{section}.sharding: fsdp, but there is one process; start several with "
            "`torchrun --nproc-per-node N -m agentcli ...`, in `run` with "
            "run.processes=N"
        )
    if settings.lora.bits == 4:
        raise UsageError(
            f"{section}.sharding: fsdp, but weights in 4 bits cannot be sharded; set "
            f"{section}.lora.bits=32 or {section}.sharding=none"
        )
