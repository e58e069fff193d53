"""Loads models and tokenizers from directories and hub ids, for sampling and training.

A directory may contain a whole model or only a PEFT adapter, whose base model is then
loaded first. Adapters are not merged, so that sampling and training compute the same.
Any exception caused by a damaged directory becomes one line that names the directory. A
missing weight is an error; transformers would initialise it at random.
"""

import contextlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from agentcli.errors import (
    AgentCliError,
    DataError,
    MissingError,
    UsageError,
)
from agentcli.policies.chat import prompt_ids, set_template_kwargs, stop_clock
from agentcli.records.faults import UNREADABLE, printable
from agentcli.records.free_memory import lacks_memory
from agentcli.records.regular import is_there, open_regular, read_regular

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

STDOUT = 1
DTYPES = ("float32", "bfloat16", "float16")
CONFIG = "config.json"
TOKENIZER = "tokenizer_config.json"
ADAPTER = "adapter_config.json"
MODALITIES = ("image", "video", "audio")
LEAST_LOGIT = -3e4
"""Gives probability 0 in every dtype; because it is finite, so is the entropy."""
FILES = (".jinja", ".json", ".safetensors")
"""Extensions of model files. A folder next to them may have any other name."""
CRITIC = "critic.json"
"""A file next to the weights of a critic or process reward model, which is not a
policy.
"""


def load_tokenizer(
    model: str, chat_template_kwargs: Mapping[str, Any] | None = None
) -> Any:
    """Loads the tokenizer of a directory or hub id; it pads on the left.

    An adapter without a tokenizer uses its base model's. Raises MissingError if there
    is nothing to load, DataError for a model directory whose tokenizer is missing or
    damaged, UsageError if there is no chat template, or if it does not mention one of
    the `chat_template_kwargs`.
    """
    source = model
    base = adapter_base(model)
    if base and not is_there(Path(model) / TOKENIZER):
        source = base
    if Path(source).is_dir() and not is_there(Path(source) / TOKENIZER):
        raise DataError(
            f"{Path(source) / TOKENIZER}: no such file; copy the model's tokenizer "
            "into its directory"
        )
    # Check for a wrong hub id before importing transformers, which takes seconds.
    source = existing(source)
    from transformers import AutoTokenizer

    with loading("policy.model", source, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left")
    if tokenizer.chat_template is None:
        raise UsageError(
            f"policy.model {source}: its tokenizer has no chat template; use an "
            "instruction-tuned model, or put a chat_template.jinja into its directory"
        )
    _refuse_other_vocabulary(source, len(tokenizer))
    stop_clock(tokenizer)
    set_template_kwargs(tokenizer, source, chat_template_kwargs)
    with loading("policy.model", source, "chat template"):
        prompt_ids(tokenizer, "hello")
    # Padding is masked or never attended to, so any token will do.
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token_id is None:
        with loading("policy.model", source, "configuration"):
            ends = configured_ends(model)
        first = ends[0] if isinstance(ends, list) else ends
        # Without any, ChatTokens says what is missing.
        if first is not None:
            tokenizer.pad_token = tokenizer.convert_ids_to_tokens(first)
    return tokenizer


def configured_ends(model: str) -> Any:
    """The end-of-turn ids in a model's files: an id, a list of ids, or None."""
    from transformers import AutoConfig, GenerationConfig

    source = adapter_base(model) or model
    try:
        return GenerationConfig.from_pretrained(source).eos_token_id
    except OSError:  # there is no generation_config.json
        return AutoConfig.from_pretrained(source).eos_token_id


def load_model(
    model: str,
    adapter: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    stored: bool = False,
) -> Any:
    """Loads the causal language model on its device, in evaluation mode.

    If an `adapter` is given, it is attached. With `stored`, weights have the types that
    the file has, whatever `dtype` says; on the CPU they are then read from its pages,
    which all processes of a machine share. Raises UsageError for an impossible device
    or dtype, MissingError if there is nothing to load, DataError for a directory
    without a complete model.
    """
    import torch

    # With tied embeddings it would load as a policy without an error.
    if is_critic(model):
        raise DataError(
            f"policy.model {model}: gives numbers and no answers ({CRITIC}); name a "
            "policy with --model, and this one with --critic or --prm"
        )
    place = resolve_device(device)
    torch_dtype = "auto" if stored else getattr(torch, resolve_dtype(dtype, place))
    base = adapter_base(model)
    if base and adapter:
        raise UsageError(
            f"policy.adapter {adapter}: {model} is an adapter itself; name its base "
            f"{base} as the model"
        )
    attached = model if base else adapter
    network = load_network(network_class(model), base or model, torch_dtype)
    if attached:
        network = attach_adapter(network, attached)
    return network.to(place).eval()


def sees(model: str) -> bool:
    """Whether a directory or hub id has a model that reads pictures as well as text.

    For an adapter, this depends on its base. Raises MissingError or DataError if there
    is no model.
    """
    source = existing(adapter_base(model) or model)
    from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoConfig

    with loading("policy.model", source, "configuration"):
        config = AutoConfig.from_pretrained(source)
    return type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING


def network_class(model: str) -> Any:
    """The transformers class that loads the policy of a directory or hub id."""
    import transformers

    if sees(model):
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForCausalLM


def accelerator() -> str:
    """What torch computes on by default: cuda, mps (Apple's GPU) or cpu."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def resolve_device(device: str) -> str:
    """The device; auto is the accelerator.

    Raises UsageError for a device that does not exist.
    """
    import torch

    if device == "auto":
        return accelerator()
    kind = device.partition(":")[0]
    if kind in ("cuda", "mps") and kind != accelerator():
        raise UsageError(
            f"policy.device: {device!r}, but torch sees no such GPU; use --device cpu"
        )
    try:
        return str(torch.device(device))
    except RuntimeError as error:
        raise UsageError(
            f"policy.device: no device {device!r}; use auto, cpu, cuda or mps"
        ) from error


def resolve_dtype(dtype: str, device: str) -> str:
    """The dtype's name; auto is bfloat16 on CUDA, else float32.

    Raises UsageError for an unknown name.
    """
    if dtype == "auto":
        return "bfloat16" if device.startswith("cuda") else "float32"
    if dtype not in DTYPES:
        raise UsageError(
            f"policy.dtype: no dtype {dtype!r}; use auto, {', '.join(DTYPES)}"
        )
    return dtype


def check_weights(model: str) -> None:
    """Raises DataError if a weight file in the directory is incomplete.

    Reads only the files' headers. Refuses pipes, folders and broken links. Hub ids are
    not checked.
    """
    for file in sorted(Path(model).glob("*")):
        if file.suffix in FILES or not file.is_dir():
            open_regular(file).close()
    for file in sorted(Path(model).glob("*.safetensors")):
        count_tensors(file)


def count_tensors(file: Path) -> int:
    """The number of tensors in a .safetensors file, by its header.

    Raises DataError if the file is incomplete.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as tensors:
            return len(tensors.keys())
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"{file}: damaged ({first_line(error)}); copy or make the model again"
        ) from error


def _refuse_other_vocabulary(model: str, tokens: int) -> None:
    """Raises DataError if a directory's tokenizer has more tokens than its model."""
    config = Path(model) / CONFIG
    if not is_there(config):
        return
    try:
        known = json.loads(read_regular(config))["vocab_size"]
    except (ValueError, KeyError, TypeError):
        return  # load_model says what is wrong with it
    if isinstance(known, int) and known < tokens:
        raise DataError(
            f"policy.model {model}: its tokenizer has {tokens} tokens, its "
            f"config.json a vocab_size of {known}; copy the model's own tokenizer "
            "there"
        )


def architecture(model: str, setting: str) -> str:
    """The class named in a model's configuration, e.g. Qwen2ForCausalLM.

    For an adapter, it is its base model's. Raises DataError if none is named.
    """
    from transformers import AutoConfig

    source = adapter_base(existing(model, setting)) or model
    with loading(setting, source, "configuration"):
        names = AutoConfig.from_pretrained(source).architectures
    return str(names[0]) if names else "model without a class"


def load_network(
    kind: Any,
    model: str,
    dtype: Any,
    setting: str = "policy.model",
    part: str = "causal LM",
    head: str | None = None,
    **options: Any,
) -> Any:
    """Loads the network of `model` with a class like AutoModelForCausalLM.

    Messages call it `part`; `options` are further arguments of from_pretrained. Raises
    DataError if any weight is missing, except those of a new `head`.
    """
    check_weights(existing(model, setting))
    with loading(setting, model, part), only_errors_logged():
        network, report = kind.from_pretrained(
            model,
            dtype=dtype,
            output_loading_info=True,
            # Else transformers raises, in many lines; below it is one.
            ignore_mismatched_sizes=True,
            **options,
        )
    faults = []
    for name in sorted(report["missing_keys"]):
        if head is None or not name.startswith(f"{head}."):
            faults.append(f"{name} is missing")
    for name, there, wanted in sorted(report["mismatched_keys"]):
        faults.append(f"{name} is {list(there)}, should be {list(wanted)}")
    if faults:
        raise DataError(
            f"{setting} {model}: its weights are not those of its config.json: "
            f"{faults[0]} ({len(faults)} such); copy or make the model again"
        )
    withhold_placeholders(network)
    return network


def placeholder_ids(config: Any) -> list[int]:
    """The tokens that a model's configuration reserves for pictures and the like."""
    names = [f"{modality}_token_id" for modality in MODALITIES]
    tokens = [getattr(config, name, None) for name in names]
    return [token for token in tokens if token is not None]


def withhold_placeholders(network: Any) -> None:
    """Prevents the network from sampling them, both in sampling and in training.

    In its own response it would mistake one for a picture, although there is none. A
    text-only model is not changed.
    """
    import torch

    tokens = placeholder_ids(network.config)
    if not tokens:
        return

    def withhold(_head: Any, _inputs: Any, logits: "Tensor") -> "Tensor":
        columns = torch.tensor(tokens, device=logits.device)
        return logits.index_fill(-1, columns, LEAST_LOGIT)

    network.get_output_embeddings().register_forward_hook(withhold)


def attach_adapter(network: Any, adapter: str, setting: str = "policy.adapter") -> Any:
    """The network with the adapter of this directory or hub id attached."""
    from peft import PeftModel

    check_weights(existing(adapter, setting))
    with loading(setting, adapter, "adapter"), warnings.catch_warnings():
        # PEFT only warns of missing weights, and leaves its initial ones there.
        warnings.filterwarnings("error", message="Found missing adapter keys")
        return PeftModel.from_pretrained(network, adapter)


@contextlib.contextmanager
def loading(setting: str, name: str, part: str) -> Iterator[None]:
    """Turns exceptions caused by faulty files into a one-line error.

    It is a DataError for a directory and a MissingError for a hub id. Files are not to
    blame where memory ran out: that raises MemoryError.
    """
    try:
        with stdout_on_stderr():
            yield
    except AgentCliError:
        raise
    except Exception as error:
        if lacks_memory(error):
            raise MemoryError(repr(error)) from error
        kind = DataError if Path(name).is_dir() else MissingError
        reason = repr(error)
        if isinstance(error, OSError | ValueError | Warning):
            reason = first_line(error)
        raise kind(
            f"{setting} {name}: no {part} could be loaded ({reason}); name another "
            f"with {_option(setting)}"
        ) from error


def is_adapter(model: str) -> bool:
    """Whether this directory contains a PEFT adapter but no whole model."""
    folder = Path(model)
    return is_there(folder / ADAPTER) and not is_there(folder / CONFIG)


def is_critic(directory: str) -> bool:
    """Whether this directory contains a critic, not just a model to make one from."""
    return is_there(Path(directory) / CRITIC)


def adapter_base(model: str) -> str | None:
    """The base model that an adapter directory names; None if it is not an adapter."""
    if not is_adapter(model):
        return None
    return _of_adapter(model, "base_model_name_or_path", str)


def adapter_shape(model: str) -> dict[str, int] | None:
    """Rank and alpha of an adapter directory; None if it is not an adapter."""
    if not is_adapter(model):
        return None
    return {"rank": rank_of(model), "alpha": _of_adapter(model, "lora_alpha", int)}


def rank_of(adapter: str) -> int:
    """The rank of a PEFT adapter. Raises DataError if none is given."""
    return _of_adapter(adapter, "r", int)


def _of_adapter(model: str, key: str, kind: type[T]) -> T:
    """A value of an adapter's configuration.

    Raises DataError if it has none, or one of another type.
    """
    config = Path(model) / ADAPTER
    try:
        fields = msgspec.json.decode(read_regular(config), type=dict[str, msgspec.Raw])
        return msgspec.json.decode(fields[key], type=kind)
    except (*UNREADABLE, KeyError) as error:
        raise DataError(
            f"{config}: {key}: cannot be read; save the adapter again"
        ) from error


def existing(name: str, setting: str = "policy.model") -> str:
    """Returns the name if it is a directory or a model on the hub.

    Asks the hub, without importing torch or transformers. Raises UsageError for a file,
    and MissingError at once if neither exists.
    """
    if Path(name).is_file():
        raise UsageError(f"{setting}: {name} is a file; name its directory")
    if Path(name).is_dir():
        return name
    # A hub id has at most one slash.
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    reason = None if looks_like_path else _absence_from_hub(name)
    if looks_like_path or reason:
        hub = f", nor such a model on the hub ({reason})" if reason else ""
        raise MissingError(
            f"{setting}: no directory {name}{hub}; name another with {_option(setting)}"
        )
    return name


def _absence_from_hub(name: str) -> str | None:
    """Why the hub does not provide this model; None if it does, or did once.

    If the hub cannot be reached, transformers would try for three quarters of a minute.
    """
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        # What is in the cache loads without the hub, also where there is no net.
        for file in (CONFIG, ADAPTER, TOKENIZER):
            if try_to_load_from_cache(name, file):
                return None
        HfApi().model_info(name)
    except Exception as error:
        return first_line(error)
    return None


def _option(setting: str) -> str:
    section, _, name = setting.rpartition(".")
    if section in ("policy", "rollout", "sft"):
        return f"--{name}"
    if section.startswith("starts."):
        return f"{setting} in the study's file"
    return f"--set {setting}=DIR"


def first_line(error: Exception) -> str:
    """The first line of an error's text, or the name of its class."""
    return str(error).strip().split("\n", 1)[0] or type(error).__name__


@contextlib.contextmanager
def no_progress_bars() -> Iterator[None]:
    """Stops transformers from printing progress bars while it loads or saves."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextlib.contextmanager
def only_errors_logged() -> Iterator[None]:
    """Hides progress bars, and the report that `load_network` checks itself."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with no_progress_bars():
            yield
    finally:
        logging.set_verbosity(verbosity)


@contextlib.contextmanager
def stdout_on_stderr() -> Iterator[None]:
    """Moves what compiled code prints on stdout to stderr, made printable.

    A library may quote a file of the model there.
    """
    with contextlib.ExitStack() as stack:
        # Without a stdout there is nothing to keep clean.
        with contextlib.suppress(OSError):
            if sys.stdout is not None:
                sys.stdout.flush()
            ours = os.dup(STDOUT)
            stack.callback(os.close, ours)
            aside = stack.enter_context(tempfile.TemporaryFile())
            os.dup2(aside.fileno(), STDOUT)
            stack.callback(_show, aside.fileno())
            stack.callback(os.dup2, ours, STDOUT)
        yield


def _show(descriptor: int) -> None:
    """Prints the lines of a file on stderr."""
    size = os.fstat(descriptor).st_size
    for line in os.pread(descriptor, size, 0).decode(errors="replace").splitlines():
        print(printable(line), file=sys.stderr)
