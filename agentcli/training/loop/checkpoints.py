"""Models in training, and checkpoints: Hugging Face directories or adapters.

Weights are trained in float32 whatever the checkpoint's type: at the papers' learning
rate of 1e-6, bfloat16 rounding would cancel an AdamW update. Only the frozen base of an
adapter may be in bfloat16 or in 4 bits (lora.bits). A checkpoint appears under
its name only when it is complete. An adapter directory has no tokenizer of its own; its
base model's is used.

With lora.bits 4 only the adapter is trained (QLoRA): weights are NF4 with quantised
scales (Dettmers et al. 2023, section 3), computed in bfloat16 on CUDA by bitsandbytes.
The value head and the language-model head are not quantised. The checkpoint also loads
on the unquantised base model.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from agentcli.errors import UsageError, WriteError
from agentcli.policies.load import (
    adapter_base,
    attach_adapter,
    is_adapter,
    load_model,
    load_network,
    network_class,
    no_progress_bars,
)
from agentcli.policies.registry import require_installed
from agentcli.records.files import part_of, writing
from agentcli.records.regular import require_regular
from agentcli.records.training_settings import LoraSettings


@contextmanager
def writing_tensors(path: Path) -> Iterator[None]:
    """Turns errors of the block into WriteError if `path` cannot be written."""
    try:
        with writing(path):
            yield
    except SafetensorError as error:  # its name for an OSError, without errno
        raise WriteError(
            f"{path}: cannot be written ({error}); free some and go on with --resume"
        ) from error


def write_tensors(
    path: Path,
    tensors: dict[str, Tensor],
    metadata: dict[str, str] | None = None,
) -> None:
    """Writes tensors from any device to a temporary file, which then replaces `path`.

    Raises WriteError if it cannot be written; `path` is then unchanged.
    """
    temporary = part_of(path)
    with writing_tensors(path):
        require_regular(temporary)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            local = {
                name: value.detach().cpu().contiguous()
                for name, value in tensors.items()
            }
            save_file(local, temporary, metadata)
            # On the disk before it takes the name, or a power cut could leave the name
            # to an incomplete file.
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        # Also at an interrupt, which is no Exception.
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


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
    require_installed("bitsandbytes", "quantised", "lora.bits: 4")


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
    # The Trainer decides about that, as for every other model.
    return prepare(network, use_gradient_checkpointing=False)


def own_gpu() -> str:
    """The GPU of this process among those of all the launcher's processes."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


def load_frozen(model: str, lora: LoraSettings, sharding: str = "none") -> Any:
    """A model, with or without adapter, that only computes log-probabilities.

    An adapter is on a base of the precision that trained ones have, or the distance to
    it would be that of the precisions. A full model is on the CPU, in float32 unless it
    will be sharded (`load_as_stored`).
    """
    if is_adapter(model):
        return _loaded(model, lora).requires_grad_(False)
    if sharding != "none":
        return load_as_stored(model).requires_grad_(False)
    return load_model(model, device="cpu", dtype="float32").requires_grad_(False)


def load_as_stored(model: str) -> Any:
    """A full model on the CPU whose weights have the types that its file has.

    All processes on a machine share the pages of the file. `place` makes float32 of one
    layer after another, and each keeps only its share. Buffers are those of a model in
    float32, because some architectures round theirs to the type of the weights.
    """
    from transformers.initialization import no_init_weights

    network = load_model(model, device="cpu", stored=True)
    # Its weights are never written, so they take no memory.
    with no_init_weights():
        exact = type(network)(network.config)
    saved = network.state_dict().keys()
    for name, buffer in exact.named_buffers():
        if name not in saved:
            owner, _, key = name.rpartition(".")
            setattr(network.get_submodule(owner), key, buffer)
    return network


def is_base(reference: str, model: Any) -> bool:
    """Whether the model has an adapter on the `reference`, which is then loaded already."""
    if not hasattr(model, "disable_adapter"):
        return False
    base = model.peft_config["default"].base_model_name_or_path
    # Names first: an id of the hub is no path.
    if reference == base:
        return True
    return (
        Path(reference).is_dir() and Path(reference).resolve() == Path(base).resolve()
    )


def load_trainable(model: str, lora: LoraSettings, sharding: str = "none") -> Any:
    """A float32 model whose weights, or those of its LoRA adapter, require a gradient.

    It is on the CPU, or with lora.bits 4 on this process's GPU. With lora.rank 0
    a full checkpoint is trained itself; one that will be sharded is in float32 only
    when it is placed (`load_as_stored`). With a higher rank, it gets a new adapter,
    initialised from torch's global random state. An adapter directory is continued, in
    its own shape. Its base is in bfloat16 with lora.bits 16. Raises MissingError if it
    cannot be loaded, and what `check_bits` raises.
    """
    check_bits(lora)
    if is_adapter(model):
        return continue_adapter(_loaded(model, lora))
    if Path(model).is_dir():
        # A new adapter stores this path as its base; it must work from any folder.
        model = str(Path(model).resolve())
    if lora.rank > 0:
        return add_adapter(_loaded(model, lora), lora)
    return load_as_stored(model) if sharding != "none" else _loaded(model, lora)


def _loaded(model: str, lora: LoraSettings) -> Any:
    """A model, or an adapter on its base; an adapter itself is always in float32."""
    if lora.bits != 4:
        dtype = "bfloat16" if lora.bits == 16 else "float32"
        return load_model(model, device="cpu", dtype=dtype)
    base = adapter_base(model)
    kind, source = network_class(model), base or model
    network = load_quantised(own_gpu(), kind, source, torch.float32)
    return attach_adapter(network, model) if base else network


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
                # A folder that holds files cannot be replaced, so it steps aside.
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
