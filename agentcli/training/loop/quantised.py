"""A 4-bit base model under an adapter; only the adapter is trained (QLoRA).

Weights are NF4 with quantised scales (Dettmers et al. 2023, section 3), computed in
bfloat16 on CUDA by bitsandbytes. The value head and the language-model head are not
quantised. The checkpoint is the adapter, which also loads on the unquantised base
model.
"""

import os
from importlib import metadata
from typing import Any

import torch

from agentcli.errors import MissingError, UsageError
from agentcli.policies.load import load_network
from agentcli.records.training_settings import LoraSettings

WHOLE = ("lm_head", "score")
"""The layers that are not quantised."""


def check_bits(lora: LoraSettings) -> None:
    """Checks that training on weights of this precision is possible.

    Raises UsageError without an adapter, and for 4 bits without a GPU, MissingError
    without bitsandbytes.
    """
    if lora.bits == 32:
        return
    if lora.rank == 0:
        raise UsageError(
            f"lora.bits: {lora.bits}, but weights in {lora.bits} bits cannot be trained; "
            "set lora.rank above 0 for an adapter"
        )
    if lora.bits == 16:
        return
    if not torch.cuda.is_available():
        raise UsageError("lora.bits: 4, but torch sees no CUDA GPU; set lora.bits=32")
    require_bitsandbytes("lora.bits: 4")


def require_bitsandbytes(setting: str) -> None:
    """Raises MissingError, naming the setting, if bitsandbytes is not installed."""
    try:
        metadata.version("bitsandbytes")
    except metadata.PackageNotFoundError as error:
        raise MissingError(
            f"{setting} needs bitsandbytes, which is not installed; get it with: pip "
            "install 'agentcli[quantised]'"
        ) from error


def load_quantised(
    device: str, kind: Any, model: str, dtype: Any, *words: str, **options: Any
) -> Any:
    """The network of `load_network` in 4 bits on a device, ready for an adapter.

    `dtype` is that of layers that are not quantised. Raises what `load_network` raises.
    """
    from peft import prepare_model_for_kbit_training
    from transformers import BitsAndBytesConfig

    is_gpu = device.startswith("cuda")
    configuration = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16 if is_gpu else torch.float32,
        llm_int8_skip_modules=list(WHOLE),
    )
    network = load_network(
        kind,
        model,
        dtype,
        *words,
        quantization_config=configuration,
        device_map={"": device},
        **options,
    )
    prepare: Any = prepare_model_for_kbit_training
    return prepare(network, use_gradient_checkpointing=False)


def own_gpu() -> str:
    """The GPU of this process among those of all the launcher's processes."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
