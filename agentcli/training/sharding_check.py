"""Refuses what the processes or the GPU of a training cannot do.

Imports torch only if something is asked for that Apple's GPU lacks.
"""

from agentcli.errors import UsageError
from agentcli.policies.load import accelerator
from agentcli.records.training_settings import SftSettings, TrainSettings


def check_sharding(
    section: str, settings: TrainSettings | SftSettings, processes: int
) -> None:
    """Raises UsageError if the sharding of `section` (train or sft) has no effect.

    Also for what is not done on Apple's GPU.
    """
    _refuse_on_apple(section, settings, processes)
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


def _refuse_on_apple(
    section: str, settings: TrainSettings | SftSettings, processes: int
) -> None:
    """Raises UsageError if Apple's GPU trains, and cannot do it in this way.

    NCCL and bitsandbytes are CUDA's. Autocast in bfloat16 was never tried there.
    """
    is_8_bit = getattr(settings, "optimizer", None) == "adamw_8bit"
    asked = {
        f"torchrun with {processes} processes": processes > 1,
        f"{section}.lora.bits=4": settings.lora.bits == 4,
        f"{section}.optimizer=adamw_8bit": is_8_bit,
        f"{section}.bf16=true": settings.bf16 is True,
    }
    named = [name for name, is_asked in asked.items() if is_asked]
    if named and accelerator() == "mps":
        raise UsageError(
            f"{named[0]}: cannot be done on Apple's GPU (mps); leave it out, or train "
            "on CUDA"
        )
