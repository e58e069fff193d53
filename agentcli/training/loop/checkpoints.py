"""Models in training, and checkpoints: Hugging Face directories or adapters.

Weights are trained in float32 whatever the checkpoint's type: at the papers' learning
rate of 1e-6, bfloat16 rounding would cancel an AdamW update. Only the frozen base of an
adapter may be in bfloat16 or in 4 bits (lora.bits). A checkpoint appears under
its name only when it is complete. An adapter directory has no tokenizer of its own; its
base model's is used.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agentcli.policies.load import (
    adapter_base,
    attach_adapter,
    is_adapter,
    load_model,
    network_class,
)
from agentcli.policies.quiet import no_progress_bars
from agentcli.records.files import part_of
from agentcli.records.training_settings import LoraSettings
from agentcli.training.loop.quantised import check_bits, load_quantised, own_gpu
from agentcli.training.loop.tensor_files import writing_tensors


def load_frozen(model: str) -> Any:
    """A model, with or without adapter, that only computes log-probabilities.

    It is in float32 on the CPU.
    """
    return load_model(model, device="cpu", dtype="float32").requires_grad_(False)


def is_base(reference: str | None, model: Any) -> bool:
    """Whether the model has an adapter on the `reference`, which is then loaded already.

    None means the base model of any adapter.
    """
    if not hasattr(model, "disable_adapter"):
        return False
    base = model.peft_config["default"].base_model_name_or_path
    if reference is None or reference == base:
        return True
    return (
        Path(reference).is_dir() and Path(reference).resolve() == Path(base).resolve()
    )


def load_trainable(model: str, lora: LoraSettings) -> Any:
    """A float32 model whose weights, or those of its LoRA adapter, require a gradient.

    It is on the CPU, or with lora.bits 4 on this process's GPU. With lora.rank 0
    a full checkpoint is trained itself. With a higher rank, it gets a new adapter,
    initialised from torch's global random state. An adapter directory is continued, in
    its own shape. Its base is in bfloat16 with lora.bits 16. Raises MissingError if it
    cannot be loaded, and what `check_bits` raises.
    """
    check_bits(lora)
    if is_adapter(model):
        return continue_adapter(_adapted(model, lora))
    if Path(model).is_dir():
        # A new adapter stores this path as its base; it must work from any folder.
        model = str(Path(model).resolve())
    if lora.bits == 4:
        return add_adapter(_quantised(model), lora)
    loaded = _loaded(model, lora)
    return add_adapter(loaded, lora) if lora.rank > 0 else loaded


def _adapted(model: str, lora: LoraSettings) -> Any:
    """The base model of an adapter directory, with that adapter."""
    if lora.bits == 4:
        return attach_adapter(_quantised(str(adapter_base(model))), model)
    return _loaded(model, lora)


def _loaded(model: str, lora: LoraSettings) -> Any:
    """A model or adapter on the CPU; an adapter itself is always in float32."""
    dtype = "bfloat16" if lora.bits == 16 else "float32"
    return load_model(model, device="cpu", dtype=dtype)


def _quantised(model: str) -> Any:
    """The causal language model in 4 bits on this process's GPU."""
    return load_quantised(own_gpu(), network_class(model), model, torch.float32)


def save_checkpoint(
    model: Any, tokenizer: Any, out: Path, weights: dict[str, Tensor] | None = None
) -> None:
    """Saves model and tokenizer, or an adapter, replacing `out`.

    If `weights` are given, they are saved instead of the model's own. Raises WriteError
    if `out` cannot be written.
    """
    with replacing(out) as folder:
        write_model(model, tokenizer, folder, state_dict=weights)


def write_model(model: Any, tokenizer: Any, folder: Path, **options: Any) -> None:
    """Writes a model with its tokenizer, or an adapter, into a folder.

    `options` are further arguments of save_pretrained.
    """
    with no_progress_bars():
        model.save_pretrained(folder, **options)
    # PEFT's model card is an empty template; `agentcli push` writes a real one.
    (folder / "README.md").unlink(missing_ok=True)
    if not is_adapter(str(folder)):
        tokenizer.save_pretrained(folder)


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """Yields a new folder next to `out`, which replaces it when the block ends.

    The next call also removes what a killed call left. Raises WriteError if it cannot
    be written.
    """
    temporary = part_of(out)
    old = out.with_name(f".{out.name}.old")
    try:
        with writing_tensors(out):
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
            temporary.mkdir(parents=True)
            yield temporary
            if out.exists():
                os.replace(out, old)
            os.replace(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def add_adapter(
    model: Any, settings: LoraSettings, task: str = "CAUSAL_LM", **more: Any
) -> Any:
    """The model with a new adapter, whose weights alone require a gradient.

    The new adapter does not change the outputs. `more` goes to PEFT's LoraConfig.
    """
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules="all-linear",
        task_type=task,
        **more,
    )
    adapted = get_peft_model(model, config)
    _sort_targets(config)
    return adapted


def continue_adapter(model: Any) -> Any:
    """A loaded PEFT model whose adapter, of whatever shape, requires a gradient."""
    model.set_adapter("default", inference_mode=False)
    _sort_targets(model.peft_config["default"])
    return model


def _sort_targets(config: Any) -> None:
    """Sorts the names of the layers, since PEFT would save its set in any order."""
    config.target_modules = sorted(config.target_modules)
