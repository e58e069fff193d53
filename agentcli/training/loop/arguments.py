"""The TrainingArguments of every trainer; transformers.Trainer only runs the loop.

It reports nothing, keeps no checkpoints of its own and shows no progress bar. Weights
are float32. By default, a GPU recomputes activations in the backward pass, and CUDA
computes in bfloat16 under autocast; the CPU does neither.
"""

import tempfile
import warnings
from typing import Any, TypeVar

from transformers import TrainingArguments

from agentcli.policies.load import accelerator
from agentcli.records.files import derive_seed
from agentcli.training.loop.distributed import Processes, check_processes

GROUP_SECONDS = 6 * 60 * 60
"""How long processes wait for each other.

The first one writes checkpoints and moments meanwhile, 91 GB for 7B, onto a disk that
may be slow. torchrun ends them at once if one of them ends, so nothing waits in vain.
"""

Arguments = TypeVar("Arguments", bound=TrainingArguments)


def trainer_arguments(
    kind: type[Arguments],
    seed: int,
    processes: Processes,
    bf16: bool | None = None,
    checkpointing: bool | None = None,
    sees: bool = False,
    **more: Any,
) -> Arguments:
    """The arguments of one trainer; `more` are those that only this trainer needs.

    If the model `sees`, it may have parameters that get no gradient from any row.

    Starts the process group, if there is one. Raises UsageError if the launcher did not
    start the processes that it announced.
    """
    device = accelerator()
    cuda = device == "cuda"
    on_gpu = device != "cpu"
    with warnings.catch_warnings():
        # transformers 5.23 renamed gradient_checkpointing, and 5.19 knows only this
        # name.
        warnings.simplefilter("ignore", FutureWarning)
        arguments = kind(
            # A Trainer creates a missing output folder. This one exists, so a killed
            # training leaves no folder behind.
            output_dir=tempfile.gettempdir(),
            use_cpu=not on_gpu,
            bf16=cuda if bf16 is None else bf16,
            gradient_checkpointing=on_gpu if checkpointing is None else checkpointing,
            seed=trainer_seed(seed),
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
            logging_strategy="steps",
            logging_steps=1,
            logging_nan_inf_filter=False,
            remove_unused_columns=False,
            dataloader_pin_memory=cuda,
            ddp_find_unused_parameters=sees,
            ddp_timeout=GROUP_SECONDS,
            num_train_epochs=1,
            **more,
        )
        _ = arguments.device  # starts the process group
    check_processes(processes, arguments.world_size)
    return arguments


def trainer_seed(seed: int) -> int:
    """A 32-bit seed, which numpy's global generator accepts too."""
    return derive_seed("trainer", seed) % 2**32
