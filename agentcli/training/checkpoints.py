"""Loading a model to train it, and saving it as a plain Hugging Face directory or a PEFT adapter.

Weights are trained in float32 whatever the checkpoint holds: at the papers' learning rate of 1e-6 an AdamW update vanishes
in bfloat16 rounding. A checkpoint appears under its name only when it is complete. An adapter directory has no tokenizer of its
own: its base model's is used.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers.utils import logging

from agentcli.errors import DataError, UsageError
from agentcli.policies.load import load_model, load_tokenizer
from agentcli.records.settings import LoraSettings
from agentcli.training.lora import add_adapter, continue_adapter, is_adapter


def load_chat_tokenizer(model: str) -> Any:
    """The tokenizer of a model directory or hub id.

    Raises DataError or MissingError when there is none, UsageError when it has no chat template.
    """
    folder = Path(model)
    if folder.is_dir() and not is_adapter(model) and not (folder / "tokenizer_config.json").is_file():
        raise DataError(
            f"{folder / 'tokenizer_config.json'}: no such file; copy the model's tokenizer into its directory, or make a model "
            "with: agentcli sft --model tiny"
        )
    tokenizer = load_tokenizer(model)
    if tokenizer.chat_template is None:
        raise UsageError(
            f"{model}: its tokenizer has no chat template; use an instruction-tuned model, or put a chat_template.jinja into its "
            "directory"
        )
    return tokenizer


def load_frozen(model: str, device: str) -> Any:
    """A float32 model, or model with adapter, that is only asked for log-probabilities."""
    with no_progress_bars():
        return load_model(model, device=device, dtype="float32").requires_grad_(False)


def load_trainable(model: str, lora: LoraSettings, device: str) -> Any:
    """A float32 model whose trained parameters require a gradient: all of them, or those of a LoRA adapter.

    With lora.rank 0 `model` must be a full checkpoint. With a rank, an adapter directory is continued (its shape must be the one
    asked for) and a full checkpoint gets a new adapter, drawn from torch's global random state.
    Raises MissingError when it cannot be loaded and UsageError when it does not fit `lora`.
    """
    with no_progress_bars():
        if is_adapter(model):
            return continue_adapter(load_model(model, device=device, dtype="float32"), model, lora)
        local = str(Path(model).resolve()) if Path(model).is_dir() else model  # an adapter remembers this as its base
        loaded = load_model(local, device=device, dtype="float32")
        return add_adapter(loaded, lora) if lora.rank > 0 else loaded


def save_checkpoint(model: Any, tokenizer: Any, out: Path) -> None:
    """Write model and tokenizer, or an adapter, to a temporary sibling of `out`, then put it in the place of `out`."""
    temporary, old = _sibling(out, "part"), _sibling(out, "old")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    with no_progress_bars():
        model.save_pretrained(temporary)
    if not is_adapter(str(temporary)):
        tokenizer.save_pretrained(temporary)
    if out.exists():
        os.replace(out, old)
    os.replace(temporary, out)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def no_progress_bars() -> Iterator[None]:
    """transformers loads and saves without writing bars to stderr."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _sibling(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{suffix}")
