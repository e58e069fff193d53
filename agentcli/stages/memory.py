"""Estimates a model's memory: weights, gradients, optimiser, activations, cache.

The formulas are for decoders like Llama, Qwen and Mistral: each layer has two
normalisations, grouped-query attention, and a gated feed-forward part. They were
checked against torch's own accounting on a CPU (tests/stages/test_memory.py). On a GPU
trainers compute in bfloat16 and keep only the input of every layer; that part was not
measured.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentcli.errors import AgentCliError
from agentcli.policies.chat import prompt_ids
from agentcli.policies.load import CONFIG, adapter_base, load_tokenizer
from agentcli.records.free_memory import free_memory
from agentcli.records.settings import PolicySettings, Settings
from agentcli.records.training_settings import SftSettings, TrainSettings
from agentcli.records.types import Step

FLOAT = 4
HALF = 2
LOGITS = 6
"""Copies of the logits at the peak: the logits, the log-probabilities needed for the
gradient, and the intermediates of the entropies. A frozen head needs one less
(measured).
"""
DRIVER = Path("/proc/driver/nvidia/version")

PROCESS_BYTES = 660_000_000
"""Python with torch and transformers, measured on a CPU."""
ENGINE_BYTES = 60_000_000
"""One engine process, measured in generated games."""
WEIGHT, GRADIENT, MOMENTS = 4, 4, 8
"""Bytes per parameter in training, all in float32."""
MOMENTS_IN_8_BITS = 2

Bytes = dict[str, int]
"""Bytes by purpose."""
ACTIVATIONS = "activations"
"""The purpose whose bytes grow with the rows that are computed together."""


class ModelShape(msgspec.Struct):
    """The sizes in a model's config.json."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    vocab_size: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None

    @property
    def query(self) -> int:
        """Width of the queries."""
        return self.num_attention_heads * self._head

    @property
    def key(self) -> int:
        """Width of the keys, which is also that of the values."""
        return (self.num_key_value_heads or self.num_attention_heads) * self._head

    @property
    def _head(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    def layer(self, *, frozen: bool) -> int:
        """Numbers per token that a layer keeps for the backward pass.

        Frozen normalisations need no gradient of their scale.
        """
        normalised = (4 if frozen else 6) * self.hidden_size
        attention = 2 * self.query + 2 * self.key
        return normalised + attention + 4 * self.intermediate_size

    @property
    def passing(self) -> int:
        """Numbers per token that exist only temporarily inside one layer."""
        return 3 * self.intermediate_size + self.hidden_size


class ModelSize(NamedTuple):
    """The parameters of a model."""

    all: int
    trained: int
    layer: int = 0
    """Parameters of its largest layer."""
    outside: int = 0
    """Parameters outside the layers: embeddings, the last normalisation and the head.
    """


class RowSize(NamedTuple):
    """The rows of one forward pass."""

    rows: int
    tokens: int
    """Tokens of the longest row, prompt and response."""
    response: int
    """Tokens of the longest response."""


def shape_of(model: str | None) -> ModelShape | None:
    """The sizes of a model, or of an adapter's base.

    None if they are not on this machine, or have other names.
    """
    if model is None:
        return None
    try:
        folder = Path(adapter_base(model) or model)
        return msgspec.json.decode((folder / CONFIG).read_bytes(), type=ModelShape)
    except (AgentCliError, OSError, msgspec.MsgspecError):
        return None


def training_activations(
    shape: ModelShape, size: RowSize, *, frozen: bool, recomputed: bool
) -> int:
    """Bytes of activations at the peak of training, including the logits."""
    tokens = size.rows * size.tokens
    layers = shape.num_hidden_layers
    kept = layers * shape.layer(frozen=frozen)
    passing = shape.passing
    # Only the inputs of layers are kept, and one layer at a time is recomputed. By then
    # the logits are freed.
    if recomputed:
        kept = layers * shape.hidden_size
        passing += shape.layer(frozen=frozen)
    copies = LOGITS - frozen
    logits = copies * size.rows * size.response * shape.vocab_size
    head = 3 * tokens * shape.hidden_size + logits
    return FLOAT * (tokens * kept + max(tokens * passing, head))


def cache_bytes(shape: ModelShape, size: RowSize, width: int) -> int:
    """Bytes of keys and values for rows that are sampled together."""
    of_token = 2 * shape.num_hidden_layers * shape.key
    return width * of_token * size.rows * size.tokens


def sampling_activations(shape: ModelShape, size: RowSize, width: int) -> int:
    """Bytes of activations while the prompts are processed."""
    prompts = size.rows * (size.tokens - size.response)
    return width * prompts * (shape.passing + 2 * shape.hidden_size)


def longest_row(steps: Iterable[Step], model: str) -> tuple[int, int]:
    """Tokens of the step with the longest texts, and of the longest response.

    Raises what `load_tokenizer` raises.
    """
    prompt = response = ""
    sampled = 0
    for step in steps:
        prompt = max(prompt, step.prompt, key=len)
        response = max(response, step.response, key=len)
        sampled = max(sampled, len(step.token_ids))
    tokenizer = load_tokenizer(model)
    # A demonstration has no tokens yet; it will have one more than its text.
    answered = sampled or len(tokenizer(response).input_ids) + 1
    return len(prompt_ids(tokenizer, prompt)) + answered, answered


class Device(NamedTuple):
    """The device that a model is computed on."""

    name: str
    free: int
    """Bytes that can still be taken."""
    total: int = 0
    """All bytes of a GPU, of which vLLM takes a share."""

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.name != "cpu"


def device_of(policy: PolicySettings) -> Device:
    """The device given by `policy.device`, with the memory that is free there now."""
    if policy.device != "cpu" and DRIVER.exists():
        import torch

        if torch.cuda.is_available():
            name = "cuda" if policy.device == "auto" else policy.device
            return Device(name, *torch.cuda.mem_get_info(name))
    return Device("cpu", free_memory())


def sampling_memory(
    parameters: ModelSize, shape: ModelShape | None, settings: Settings, device: Device
) -> Bytes:
    """Bytes used while trees grow, by purpose."""
    policy = settings.policy
    is_half = policy.dtype in ("bfloat16", "float16")
    width = HALF if is_half or (policy.dtype == "auto" and device.is_gpu) else FLOAT
    weights = width * parameters.all
    parts = {"weights": weights // sampling_devices(settings)}
    appraisers = [settings.rollout.critic, settings.rollout.prm]
    if any(appraisers):
        # They are assumed to be as large as the policy.
        count = len(list(filter(None, appraisers)))
        parts["critic and reward model"] = count * weights
    if policy.kind == "vllm" and device.is_gpu:
        share = int(policy.vllm.gpu_memory_utilization * device.total)
        return {**parts, "cache": max(0, share - parts["weights"])}
    if shape is not None:
        size = sampled_rows(settings)
        parts[ACTIVATIONS] = sampling_activations(shape, size, width)
        parts["cache"] = cache_bytes(shape, size, width)
    if not device.is_gpu:
        parts["processes"] = settings.environment.processes * ENGINE_BYTES
        parts["processes"] += PROCESS_BYTES
    return parts


def sampling_devices(settings: Settings) -> int:
    """Number of devices that the policy is spread over."""
    policy = settings.policy
    return policy.vllm.tensor_parallel if policy.kind == "vllm" else 1


def sampled_rows(settings: Settings) -> RowSize:
    """The largest batch of requests, with the longest prompts."""
    rollout = settings.rollout
    policy = settings.policy
    rows = min(policy.batch_rows, rollout.concurrency * rollout.leaves)
    tokens = policy.max_prompt_tokens + policy.max_tokens
    return RowSize(rows, tokens, policy.max_tokens)


def training_memory(
    parameters: ModelSize,
    shape: ModelShape | None,
    size: RowSize,
    settings: TrainSettings | SftSettings,
    device: Device,
    models: int = 1,
    processes: int = 1,
) -> Bytes:
    """Bytes of one process while `models` of one size are trained, by purpose."""
    recomputed = settings.gradient_checkpointing
    if recomputed is None:
        recomputed = device.is_gpu
    moments = MOMENTS
    # sft always uses AdamW in float32.
    if isinstance(settings, TrainSettings) and settings.optimizer == "adamw_8bit":
        moments = MOMENTS_IN_8_BITS
    shares = 1 if settings.sharding == "none" else processes
    parts = {
        "weights": models * WEIGHT * parameters.all // shares,
        "gradients": models * GRADIENT * parameters.trained // shares,
        "optimiser": models * moments * parameters.trained // shares,
    }
    if shares > 1:
        parts["gathered"] = gathered_bytes(parameters)
    if shape is not None:
        frozen = parameters.trained < parameters.all
        parts[ACTIVATIONS] = training_activations(
            shape, size, frozen=frozen, recomputed=recomputed
        )
    if not device.is_gpu:
        parts["processes"] = PROCESS_BYTES
    return parts


def gathered_bytes(parameters: ModelSize) -> int:
    """Bytes that a process gathers of a sharded model, at the peak of a backward pass.

    Parameters outside the layers stay gathered the whole time, with their gradients. Of
    the layers, two are gathered: one is fetched while another is computed.
    """
    whole = parameters.outside + 2 * parameters.layer
    trained = parameters.trained / parameters.all
    return round((WEIGHT + GRADIENT * trained) * whole)


def loop_memory(
    parameters: ModelSize,
    shape: ModelShape | None,
    settings: Settings,
    device: Device,
    models: int = 1,
) -> Bytes:
    """Bytes of a loop, by purpose: the sampler's weights stay during training.

    `models` are trained. Memory that only sampling or only training uses counts once,
    for the one that uses more.
    """
    size = sampled_rows(settings)
    size = size._replace(rows=settings.train.rows_together(size.tokens))
    sampling = sampling_memory(parameters, shape, settings, device)
    training = training_memory(parameters, shape, size, settings.train, device, models)
    # A sleeping engine leaves the GPU to the trainer.
    if settings.policy.kind == "vllm" and settings.policy.vllm.sleep:
        return max(sampling, training, key=lambda parts: sum(parts.values()))
    weights = sampling.pop("weights")
    # Gradients and optimiser are freed while trees grow.
    alone = sampling if sum(sampling.values()) > sum(training.values()) else training
    return {**alone, "sampler's weights": weights}


class Remedy(NamedTuple):
    """A setting that a part of the memory grows with, in proportion."""

    setting: str
    value: int
    lower: Sequence[int]
    """The values that it can be lowered to, the highest first."""

    def fitting(self, held: int, missing: float) -> int | None:
        """The highest value with which a part that holds `held` has `missing` less."""
        for value in self.lower:
            if held * (1 - value / self.value) >= missing:
                return value
        return None


def divisors(number: int, below: int) -> list[int]:
    """The divisors that are lower than `below`, the highest first."""
    return [each for each in range(below - 1, 0, -1) if number % each == 0]


class MemoryNeed(NamedTuple):
    """The memory of each process of a stage on its device, and how to need less."""

    parts: Bytes
    device: Device
    remedies: Mapping[str, Remedy]
    """By the part that grows with the setting."""
    devices: int = 1
    """Number of devices that compute, each with this memory."""
    sharing: str = ""
    """How to share the model across more devices, in words."""

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self.parts.values())

    def fewer_rows(self, missing: float) -> int:
        """The rows with which activations take `missing` bytes less, or the fewest."""
        remedy = self.remedies[ACTIVATIONS]
        value = remedy.fitting(self.parts.get(ACTIVATIONS, 0), missing)
        return value or min(remedy.lower, default=remedy.value)

    @property
    def advice(self) -> str:
        """What to type if more is needed than is free; else ""."""
        if self.total <= self.device.free:
            return ""
        for part in sorted(
            self.remedies, key=lambda part: self.parts.get(part, 0), reverse=True
        ):
            remedy = self.remedies[part]
            missing = self.total - self.device.free
            value = remedy.fitting(self.parts.get(part, 0), missing)
            if value is not None:
                return f"{self.sentence}: --set {remedy.setting}={value}"
        return (
            f"{self.sentence}; train an adapter with --lora 16, {self.sharing}or take a "
            "smaller model"
        )

    @property
    def sentence(self) -> str:
        """What is needed, and what is free."""
        where = f" on {self.device.name}" if self.device.is_gpu else ""
        free = _gigabytes(self.device.free)
        return f"needs {_gigabytes(self.total)}, and {free} are free{where}"


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
