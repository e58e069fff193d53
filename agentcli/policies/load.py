"""Model directories and hub ids to a model and a tokenizer: the one loader of sampling, sft and train.

A directory may hold a whole model or only a PEFT adapter (its base is then loaded first). Adapters stay unmerged, so that
sampling computes what training computes. Nothing here decides how a model is used.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentcli.errors import DataError, MissingError, UsageError

DTYPES = ("float32", "bfloat16", "float16")
TOKENIZER, ADAPTER = "tokenizer_config.json", "adapter_config.json"


def load_tokenizer(model: str) -> Any:
    """The tokenizer of a directory or hub id, padding on the left; an adapter without one uses its base's.

    Raises MissingError when there is nothing to load, DataError for a model directory without one, UsageError when it has no chat
    template.
    """
    from transformers import AutoTokenizer

    base = _adapter_base(model)
    source = base if base and not (Path(model) / TOKENIZER).is_file() else model
    if Path(source).is_dir() and not (Path(source) / TOKENIZER).is_file():
        raise DataError(
            f"{Path(source) / TOKENIZER}: no such file; copy the model's tokenizer into its directory, or make a model with: "
            "agentcli sft --model tiny"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(_existing(source), padding_side="left")
    except (OSError, ValueError) as error:
        raise MissingError(f"policy.model {source}: no tokenizer could be loaded ({_first_line(error)})") from error
    if tokenizer.chat_template is None:
        raise UsageError(
            f"policy.model {source}: its tokenizer has no chat template; use an instruction-tuned model, or put a "
            "chat_template.jinja into its directory"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(model: str, adapter: str | None = None, device: str = "auto", dtype: str = "auto") -> Any:
    """The causal language model in evaluation mode on its device, with `adapter` attached when one is given.

    Raises UsageError for an impossible device or dtype, MissingError when there is nothing to load.
    """
    import torch
    from transformers import AutoModelForCausalLM

    place = resolve_device(device)
    number = getattr(torch, resolve_dtype(dtype, place))
    base = _adapter_base(model)
    if base and adapter:
        raise UsageError(f"policy.adapter {adapter}: {model} is an adapter itself; name its base {base} as the model")
    attached = model if base else adapter
    try:
        with no_progress_bars():
            network: Any = AutoModelForCausalLM.from_pretrained(_existing(base or model), dtype=number)
    except (OSError, ValueError) as error:
        raise MissingError(
            f"policy.model {base or model}: no causal LM could be loaded ({_first_line(error)})"
        ) from error
    if attached:
        network = _attach(network, attached)
    return network.to(place).eval()


def resolve_device(device: str) -> str:
    """auto: cuda where there is one, else cpu. Raises UsageError for a device that is not there."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"policy.device: {device!r}, but torch sees no GPU; use --device cpu")
    try:
        return str(torch.device(device))
    except RuntimeError as error:
        raise UsageError(f"policy.device: no device {device!r}; use auto, cpu or cuda") from error


def resolve_dtype(dtype: str, device: str) -> str:
    """auto: bfloat16 on a GPU, else float32. Raises UsageError for an unknown name."""
    if dtype == "auto":
        return "bfloat16" if device.startswith("cuda") else "float32"
    if dtype not in DTYPES:
        raise UsageError(f"policy.dtype: no dtype {dtype!r}; use auto, {', '.join(DTYPES)}")
    return dtype


@contextlib.contextmanager
def no_progress_bars() -> Iterator[None]:
    """transformers loads and saves without writing bars to stderr."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _attach(network: Any, adapter: str) -> Any:
    from peft import PeftModel

    try:
        return PeftModel.from_pretrained(network, _existing(adapter))
    except (OSError, ValueError) as error:
        raise MissingError(f"policy.adapter {adapter}: no adapter could be loaded ({_first_line(error)})") from error


def is_adapter(model: str) -> bool:
    """Whether this is a directory that holds a PEFT adapter and no whole model."""
    return (Path(model) / ADAPTER).is_file() and not (Path(model) / "config.json").is_file()


def _adapter_base(model: str) -> str | None:
    """The base model that an adapter directory names; None when `model` is no adapter directory."""
    if not is_adapter(model):
        return None
    config = Path(model) / ADAPTER
    try:
        return str(json.loads(config.read_text(encoding="utf-8"))["base_model_name_or_path"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{config}: base_model_name_or_path: cannot be read; save the adapter again") from error


def _existing(name: str) -> str:
    """`name`, refused when it can only be a path and there is nothing (a hub id has at most one slash)."""
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    if looks_like_path and not Path(name).is_dir():
        raise MissingError(
            f"policy.model: no directory {name}; make one with agentcli sft, or name another with --model"
        )
    return name


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
