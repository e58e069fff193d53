"""The critic: its network and its directory.

V(s) is read at the last token of the prompt, from a transformers model for token
classification with one label. Its head is `linear`, or the `mlp` of Rare-tool section
3.3; a new head outputs 0. A critic's directory has one file more than a model's,
critic.json. With a linear head it loads with AutoModelForTokenClassification; with an
mlp the backbone loads with AutoModel, and the head is in head.safetensors. A LoRA
adapter stores the head with its own weights. A directory without critic.json is treated
as a model and gets a new head. A process reward model has the same format: it is read
at the last token of the response, and critic.json says so.

Shape suffixes: B prompts, T padded length.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from agentcli.errors import DataError
from agentcli.policies.load import (
    CRITIC,
    adapter_base,
    attach_adapter,
    is_critic,
    load_network,
    resolve_device,
    resolve_dtype,
)
from agentcli.records.files import read_json, write_json
from agentcli.records.training_settings import LoraSettings
from agentcli.records.types import SCHEMA_VERSION, Record
from agentcli.training.loop.checkpoints import (
    add_adapter,
    continue_adapter,
    replacing,
    write_model,
)
from agentcli.training.loop.quantised import check_bits, load_quantised, own_gpu
from agentcli.training.objectives import Head

HEAD = "head.safetensors"
SCORE = "score"
"""The name of the head in transformers' token classification models."""

Loader = Callable[..., Any]
"""`load_network`, or a function that takes the same arguments and quantises."""


Reads = Literal["prompt", "response"]


class CriticCard(Record, kw_only=True):
    """The content of critic.json."""

    schema_version: int = SCHEMA_VERSION
    head: Head
    reads: Reads | msgspec.UnsetType = msgspec.UNSET
    """Where the output is read; not written for a critic, which is read at the prompt.
    """


def reads_of(directory: str) -> Reads:
    """Where a critic's directory says it is read: at the prompt or the response."""
    reads = read_json(Path(directory) / CRITIC, CriticCard).reads
    return "prompt" if reads is msgspec.UNSET else reads


def load_critic(
    source: str,
    head: Head = "linear",
    device: str = "auto",
    dtype: str = "float32",
    setting: str = "rollout.critic",
) -> Any:
    """Loads a critic from its directory, or makes one from a model with a new `head`.

    For an adapter without a critic, its base model is used. Messages name `setting`.
    Raises UsageError for an impossible device, MissingError if there is nothing to
    load, and DataError if the directory holds only a part of a critic.
    """
    place = resolve_device(device)
    torch_dtype = getattr(torch, resolve_dtype(dtype, place))
    return _open(source, head, torch_dtype, setting).to(place).eval()


def load_trainable_critic(
    source: str, head: Head, lora: LoraSettings, setting: str
) -> Any:
    """A critic in float32 whose weights, or those of its adapter, require a gradient.

    The head is always trained. The critic is on the CPU, or with lora.bits 4 on this
    process's GPU. Raises what `load_critic` and `check_bits` raise.
    """
    if Path(source).is_dir():
        # A new adapter stores this path as its base; it must work from any folder.
        source = str(Path(source).resolve())
    check_bits(lora)
    load: Loader = load_network
    if lora.bits == 4:
        load = partial(load_quantised, own_gpu())
    critic = _open(source, head, torch.float32, setting, load).eval()
    if hasattr(critic, "peft_config"):
        return continue_adapter(critic)
    if lora.rank == 0:
        return critic.requires_grad_(True)
    return add_adapter(
        critic,
        lora,
        "TOKEN_CLS",
        modules_to_save=[SCORE],
        exclude_modules=rf"{SCORE}(\..*)?",
    )


def state_values(critic: Any, ids_BT: Tensor, last_B: Tensor) -> Tensor:
    """V (B,) in float32, read at position `last_B` of right-padded prompts.

    No attention mask is needed: a position never attends to what comes after it.
    """
    scores_BT = critic(input_ids=ids_BT, use_cache=False).logits[..., 0]
    values_B: Tensor = scores_BT.gather(1, last_B[:, None])[:, 0].float()
    return values_B


def save_critic(
    critic: Any, tokenizer: Any, out: Path, reads: Reads = "prompt"
) -> None:
    """Replaces `out` by the directory of this critic. Raises WriteError."""
    is_adapter = hasattr(critic, "peft_config")
    score = critic.score.modules_to_save["default"] if is_adapter else critic.score
    is_linear = isinstance(score, nn.Linear)
    with replacing(out) as folder:
        if is_linear or is_adapter:
            write_model(critic, tokenizer, folder)
        else:
            weights = critic.state_dict()
            backbone = {
                name: weights[name]
                for name in weights
                if not name.startswith(f"{SCORE}.")
            }
            write_model(critic, tokenizer, folder, state_dict=backbone)
            save_file(score.state_dict(), folder / HEAD)
        card = CriticCard(head="linear" if is_linear else "mlp")
        if reads == "response":
            card.reads = reads
        write_json(folder / CRITIC, card)


def _open(
    source: str, head: Head, dtype: Any, setting: str, load: Loader = load_network
) -> Any:
    """The network from a critic's directory or from a model."""
    card = None
    if is_critic(source):
        card = read_json(Path(source) / CRITIC, CriticCard)
        head = card.head
    base = adapter_base(source)
    if base is not None:
        # The base model of a critic's adapter may itself be a critic.
        network = _open(base, head, dtype, setting, load)
        return network if card is None else attach_adapter(network, source, setting)
    return _network(source, head, dtype, setting, load, is_new=card is None)


def _network(
    source: str, head: Head, dtype: Any, setting: str, load: Loader, is_new: bool
) -> Any:
    """The network from a directory that is not an adapter."""
    from transformers import AutoModelForTokenClassification

    replaces_head = is_new or head == "mlp"
    network = load(
        AutoModelForTokenClassification,
        source,
        dtype,
        setting,
        "critic",
        head=SCORE if replaces_head else None,
        num_labels=1,
    )
    if not isinstance(getattr(network, SCORE, None), nn.Linear):
        raise DataError(
            f"{setting} {source}: a {type(network).__name__} has no head {SCORE!r} to "
            "read a value from; take a decoder such as Qwen2 or Llama"
        )
    # Without a rate in the configuration, transformers uses a dropout of 0.1.
    network.config.classifier_dropout = 0.0
    network.dropout.p = 0.0
    if replaces_head:
        place = network.score.weight.device
        network.score = _new_head(head, network.score.in_features).to(place, dtype)
    if not is_new and head == "mlp":
        _fill_head(network.score, Path(source) / HEAD)
    return network


def _new_head(head: Head, width: int) -> nn.Module:
    """A new head whose last layer is 0, so that every value is 0."""
    last = nn.Linear(width, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    if head == "linear":
        return last
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), last)


def _fill_head(score: nn.Module, path: Path) -> None:
    """Loads the head's weights from a file. Raises DataError if they do not fit."""
    try:
        score.load_state_dict(load_file(path))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{path}: no value head can be read there ({reason}); train the critic "
            "again, or leave it out"
        ) from error
