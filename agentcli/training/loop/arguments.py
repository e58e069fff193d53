"""What both trainers ask of transformers.Trainer: nothing but the loop. No reports, no checkpoints of its own, no progress bar.

Weights are float32. A CUDA device computes in bfloat16 under autocast and recomputes activations in the backward pass; the CPU
does neither.
"""

import tempfile
import warnings
from typing import Any, TypeVar

import torch
from transformers import TrainingArguments

from agentcli.records.files import derive_seed

Arguments = TypeVar("Arguments", bound=TrainingArguments)


def trainer_arguments(kind: type[Arguments], seed: int, **more: Any) -> Arguments:
    """Arguments of either trainer; `more` holds what differs. Also starts the process group, where there is one.

    A Trainer makes its output folder if it is missing and, told to save nothing, leaves it empty. The folder for temporary files is
    there already, so that a training that is killed leaves none behind.
    """
    cuda = torch.cuda.is_available()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", FutureWarning
        )  # gradient_checkpointing has a new name since 5.23; 5.17 knows only this one
        arguments = kind(
            output_dir=tempfile.gettempdir(),
            use_cpu=not cuda,
            bf16=cuda,
            gradient_checkpointing=cuda,
            seed=trainer_seed(seed),
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
            logging_strategy="steps",
            logging_nan_inf_filter=False,
            remove_unused_columns=False,
            dataloader_pin_memory=cuda,
            ddp_find_unused_parameters=False,
            **more,
        )
        _ = arguments.device
    return arguments


def trainer_seed(seed: int) -> int:
    """A seed that numpy's global generator takes too: 32 bits."""
    return derive_seed("trainer", seed) % 2**32
