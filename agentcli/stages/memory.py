"""Estimates a model's memory: weights, gradients, optimiser, activations, cache.

Parameters are counted on torch's meta device, from the model's configuration alone. The
formulas are for decoders like Llama, Qwen and Mistral: each layer has two
normalisations, grouped-query attention, and a gated feed-forward part. They were
checked against torch's own accounting on a CPU (tests/stages/test_memory.py), and never
on a GPU. Trainings ask before they load a model, and `--dry-run` does.

On a CPU, a command that takes too much is killed without a word. There the number of
rows that a training computes together is an upper bound: fewer rows change results only
by rounding. Where the setting fits, it is used as it is, whatever else is free. On a
GPU an allocation that fails ends in an error, so there is only a warning.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentcli.errors import AgentCliError, UsageError
from agentcli.policies.chat import prompt_ids
from agentcli.policies.load import (
    adapter_base,
    adapter_shape,
    load_tokenizer,
    loading,
    network_class,
    resolve_device,
    resolve_dtype,
)
from agentcli.prompts.recorded import whole_text
from agentcli.records.free_memory import free_memory
from agentcli.records.processes import process_count
from agentcli.records.settings import PolicySettings, Settings
from agentcli.records.training_settings import (
    TINY,
    LoraSettings,
    SftSettings,
    TrainSettings,
)
from agentcli.stages.plan import with_changes
from agentcli.stages.session import Session, begun_with
from agentcli.stages.trees import checked_trees
from agentcli.training.objectives import not_read

FLOAT, HALF = 4, 2
LOGITS = 6
"""Copies of the logits at the peak of training: the logits, the log-probabilities
needed for the gradient, and the intermediates of the entropies. A frozen head needs one
less (measured).
"""
SCORED_LOGITS = 3
"""Copies without a gradient: the logits, and those in float32 before and after the
softmax.
"""
WEIGHT, GRADIENT, MOMENTS = 4, 4, 8
"""Bytes per parameter in training, all in float32."""
MOMENTS_IN_8_BITS = 2
PROCESS_BYTES = 660_000_000
"""Python with torch and transformers, measured on a CPU."""
ENGINE_BYTES = 60_000_000
"""One engine process, measured in generated games."""
ASLEEP_BYTES = 2_000_000_000
"""What a sleeping vLLM engine keeps of a GPU: its CUDA context and graphs. Assumed."""

Bytes = dict[str, int]
"""Bytes by purpose."""
ENGINE = "engine"
"""What vLLM takes of a GPU besides the weights, whatever the model needs."""
ACTIVATIONS, CACHE = GROWING = ("activations", "cache")
"""The purposes whose bytes grow with the rows that are computed together."""


class ModelSize(NamedTuple):
    """Numbers of parameters, and of what is computed for a token."""

    all: int
    trained: int
    layer: int
    """Parameters of the largest layer."""
    layers: int
    hidden: int
    kept: int
    """Numbers that a layer keeps for the backward pass."""
    passing: int
    """Numbers that exist only temporarily inside one layer."""
    cached: int
    """Keys and values in all layers."""
    vocabulary: int
    logits_at_once: int
    """How many logits a training computes together (training/loop/forward.py)."""


def known_size(model: str | None, lora: LoraSettings) -> ModelSize | str:
    """The size of a model, or why it is not known."""
    if model is None:
        return "no model is loaded here"
    if model == TINY:
        return "the model is made from its demonstrations"
    try:
        return model_size(model, lora)
    except AgentCliError as error:
        return str(error)


def model_size(model: str, lora: LoraSettings) -> ModelSize:
    """The size of a directory's or hub id's model, without loading a weight.

    For an adapter directory, the base model with that adapter. Raises what
    `network_class` raises.
    """
    base = adapter_base(model) or model
    kind = network_class(base)
    from transformers import AutoConfig

    shape = adapter_shape(model) or {"rank": lora.rank}
    with loading("policy.model", base, "configuration"):
        return size_of(kind, AutoConfig.from_pretrained(base), shape["rank"])


def size_of(kind: Any, config: Any, rank: int) -> ModelSize:
    """The size of a configuration's model, with an adapter of this rank; 0: without.

    `kind` is a class like AutoModelForCausalLM.
    """
    import torch
    from transformers.modeling_layers import GradientCheckpointingLayer

    from agentcli.training.loop.forward import LOGITS_AT_ONCE, in_chunks

    with torch.device("meta"):
        network = kind.from_config(config)
    head = network.get_output_embeddings()
    layer = widths = 0
    for module in network.modules():
        if isinstance(module, GradientCheckpointingLayer):
            layer = max(layer, _parameters(module))
        if isinstance(module, torch.nn.Linear) and module is not head:
            widths += module.in_features + module.out_features
    total = _parameters(network)
    text = config.get_text_config()
    hidden, heads = text.hidden_size, text.num_attention_heads
    inner = getattr(text, "intermediate_size", None) or 4 * hidden
    width = getattr(text, "head_dim", None) or hidden // heads
    keys = (getattr(text, "num_key_value_heads", None) or heads) * width
    # Frozen normalisations need no gradient of their scale.
    normalised = (4 if rank else 6) * hidden
    return ModelSize(
        all=total + rank * widths,
        trained=rank * widths or total,
        layer=layer,
        layers=text.num_hidden_layers,
        hidden=hidden,
        kept=normalised + 2 * (heads * width + keys) + 4 * inner,
        passing=3 * inner + hidden,
        cached=2 * text.num_hidden_layers * keys,
        vocabulary=text.vocab_size,
        logits_at_once=(
            LOGITS_AT_ONCE if in_chunks(network, head, sys.maxsize) else sys.maxsize
        ),
    )


def _parameters(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


class RowSize(NamedTuple):
    """The rows of one forward pass."""

    rows: int
    tokens: int
    """Tokens of the longest row, prompt and response."""
    response: int
    """Tokens of the longest response."""


def training_activations(size: ModelSize, rows: RowSize, *, recomputed: bool) -> Bytes:
    """Bytes of activations at the peak of training, including the logits."""
    tokens = rows.rows * rows.tokens
    kept = size.layers * size.kept
    passing = size.passing
    # Only the inputs of layers are kept, and one layer at a time is recomputed. By then
    # the logits are freed.
    if recomputed:
        kept = size.layers * size.hidden
        passing += size.kept
    is_frozen = size.trained < size.all
    logits = rows.rows * rows.response * size.vocabulary
    head = 3 * tokens * size.hidden
    chunk = 0
    if logits <= size.logits_at_once:
        head += (LOGITS - is_frozen) * logits
    else:
        # On the way back the gradient of a trained head is summed over the chunks.
        summed = 0 if is_frozen else 2 * size.vocabulary * size.hidden
        chunk = max(4 * size.logits_at_once, 2 * size.logits_at_once + summed)
    if tokens * passing > head + chunk:
        head, chunk = tokens * passing, 0
    # Fewer rows do not make a chunk smaller, so it is a part of its own.
    held = {ACTIVATIONS: FLOAT * (tokens * kept + head)}
    return held | ({"logits": FLOAT * chunk} if chunk else {})


def forward_activations(size: ModelSize, tokens: int, width: int) -> int:
    """Bytes of activations of a pass without gradients, logits not included."""
    return width * tokens * (size.passing + 2 * size.hidden)


def cache_bytes(size: ModelSize, rows: RowSize, width: int) -> int:
    """Bytes of keys and values for rows that are sampled together."""
    return width * size.cached * rows.rows * rows.tokens


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
    import torch

    name = resolve_device(policy.device)
    if name.startswith("cuda"):
        return Device(name, *torch.cuda.mem_get_info(name))
    if name == "mps":
        # It shares the main memory.
        return Device(name, torch.mps.recommended_max_memory())
    return Device("cpu", free_memory())


def sampled_rows(settings: Settings) -> RowSize:
    """The largest batch of requests, with the longest prompts."""
    rollout = settings.rollout
    policy = settings.policy
    rows = min(policy.batch_rows, rollout.concurrency * rollout.leaves)
    tokens = policy.max_prompt_tokens + policy.max_tokens
    return RowSize(rows, tokens, policy.max_tokens)


class MemoryNeed(NamedTuple):
    """The memory of each process of a stage on its device, and how to need less."""

    parts: Bytes
    device: Device
    setting: str
    """The setting whose value `GROWING` parts are proportional to."""
    value: int
    whole: int
    """What another value must divide."""
    devices: int = 1
    """Number of devices that compute, each with this memory."""

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self.parts.values())

    def lower(self, missing: float) -> int | None:
        """The highest value with which `missing` bytes less are needed, if one does."""
        growing = sum(self.parts.get(part, 0) for part in GROWING)
        for value in range(self.value - 1, 0, -1):
            is_enough = growing * (1 - value / self.value) >= missing
            if is_enough and self.whole % value == 0:
                return value
        return None

    @property
    def advice(self) -> str:
        """What to type if more is needed than is free; else ""."""
        missing = self.total - self.device.free
        if missing <= 0:
            return ""
        value = self.lower(missing)
        if value is not None:
            return f"{self.sentence}: --set {self.setting}={value}"
        section = self.setting.partition(".")[0]
        if section == "policy":
            return f"{self.sentence}; take a smaller model"
        return (
            f"{self.sentence}; train an adapter with --lora 16, share the model under "
            f"torchrun with {section}.sharding=fsdp, or take a smaller model"
        )

    @property
    def sentence(self) -> str:
        """What is needed, and what is free."""
        where = f" on {self.device.name}" if self.device.is_gpu else ""
        needed, free = (
            f"{count / 1e9:.1f} GB" for count in (self.total, self.device.free)
        )
        return f"needs {needed}, and {free} are free{where}"


def need_of_sampling(size: ModelSize, settings: Settings, device: Device) -> MemoryNeed:
    """The memory of a policy, and of critic and reward model, while trees grow."""
    policy = settings.policy
    rows = sampled_rows(settings)
    devices = policy.vllm.tensor_parallel if policy.kind == "vllm" else 1
    width = FLOAT if resolve_dtype(policy.dtype, device.name) == "float32" else HALF
    weights = width * size.all
    parts = {"weights": weights // devices}
    appraisers = [settings.rollout.critic, settings.rollout.prm]
    if any(appraisers):
        # They are assumed to be as large as the policy.
        parts["critic and reward model"] = weights * len(list(filter(None, appraisers)))
    if policy.kind == "vllm" and device.is_gpu:
        # vLLM takes its share whether it needs it or not: what weights leave is cache.
        share = int(policy.vllm.gpu_memory_utilization * device.total)
        parts[ENGINE] = max(0, share - parts["weights"])
    else:
        prompts = rows.rows * (rows.tokens - rows.response)
        parts[ACTIVATIONS] = forward_activations(size, prompts, width)
        parts[CACHE] = cache_bytes(size, rows, width)
        if not device.is_gpu:
            engines = settings.environment.processes * ENGINE_BYTES
            parts["processes"] = engines + PROCESS_BYTES
    return MemoryNeed(parts, device, "policy.batch_rows", rows.rows, rows.rows, devices)


def need_of_update(
    size: ModelSize,
    rows: RowSize,
    settings: TrainSettings | SftSettings,
    device: Device,
    *,
    whole: int,
    models: int = 1,
    processes: int = 1,
    reference: bool = False,
) -> MemoryNeed:
    """The memory of one process while `models` of one size are trained.

    `whole` is what a lower number of rows divides. A `reference` is another whole
    model, which scores the rows before gradients and moments exist, and is freed then.
    """
    recomputed = settings.gradient_checkpointing
    # As the trainer chooses where nothing is set.
    if recomputed is None:
        recomputed = device.is_gpu
    moments = MOMENTS
    # sft always uses AdamW in float32.
    if isinstance(settings, TrainSettings) and settings.optimizer == "adamw_8bit":
        moments = MOMENTS_IN_8_BITS
    shares = 1 if settings.sharding == "none" else processes
    frozen = (size.all - size.trained) * frozen_bits(settings.lora, models) // 8
    always = {"weights": (models * WEIGHT * size.trained + frozen) // shares}
    if shares > 1:
        # Parameters outside the layers stay gathered, with their gradients. Of the
        # layers, one is fetched while another is computed.
        gathered = size.all - (size.layers - 2) * size.layer
        width = WEIGHT + GRADIENT * size.trained / size.all
        always["gathered"] = round(width * gathered)
    if not device.is_gpu:
        always["processes"] = PROCESS_BYTES
    updating = {
        "gradients": models * GRADIENT * size.trained // shares,
        "optimiser": models * moments * size.trained // shares,
        **training_activations(size, rows, recomputed=recomputed),
    }
    scoring = {}
    if reference:
        logits = min(rows.rows * rows.response * size.vocabulary, size.logits_at_once)
        scoring["reference"] = WEIGHT * size.all // shares
        scoring[ACTIVATIONS] = FLOAT * SCORED_LOGITS * logits
        tokens = rows.rows * rows.tokens
        scoring[ACTIVATIONS] += forward_activations(size, tokens, FLOAT)
    # They do not overlap in time: the reference is freed before gradients exist.
    parts = always | max(updating, scoring, key=lambda held: sum(held.values()))
    value = rows.rows
    most = settings.tokens_per_microbatch
    if most is not None:
        # A row that is longer than a limit runs alone: below one row nothing is saved.
        value = min(most, rows.rows * rows.tokens) if rows.rows > 1 else 1
        whole = most
    section = "sft" if isinstance(settings, SftSettings) else "train"
    setting = f"{section}.{settings.microbatch_limit}"
    return MemoryNeed(parts, device, setting, value, whole, processes)


def frozen_bits(lora: LoraSettings, models: int) -> int:
    """The bits of a frozen weight, summed over a policy and its critic.

    Only a policy's base is ever in bfloat16.
    """
    of_critic = 32 if lora.bits == 16 else lora.bits
    return lora.bits + (models - 1) * of_critic


def need_of_training(
    settings: Settings, model: str, trees: Path, critic: str | None
) -> MemoryNeed | None:
    """The memory of a training on a trees file, including any critic.

    None if the size of the model is not known, or if the objective computes whole
    trajectories together.
    """
    train = settings.train
    size = known_size(model, train.lora)
    if isinstance(size, str) or "rows_per_microbatch" in not_read(train):
        return None
    rows = longest_rows([trees], "rollout", model)
    rows = rows._replace(rows=min(rows.rows, train.rows_together(rows.tokens)))
    return need_of_update(
        size,
        rows,
        train,
        device_of(settings.policy),
        whole=train.rows_per_microbatch,
        processes=process_count(),
        models=1 if critic is None else 2,
        reference=holds_reference(train, model),
    )


def need_of_imitation(
    settings: Settings, model: str, trees: Sequence[Path]
) -> MemoryNeed | None:
    """The memory of sft; None if the size of the model is not known."""
    sft = settings.sft
    size = known_size(model, sft.lora)
    if isinstance(size, str):
        return None
    processes = process_count()
    # Each process has an equal part of an update, which microbatches must divide.
    whole = sft.samples_per_update // processes
    rows = longest_rows(trees, "demos", model)
    tokens = min(rows.tokens, sft.max_length)
    rows = rows._replace(tokens=tokens, rows=min(whole, sft.rows_together(tokens)))
    device = device_of(settings.policy)
    return need_of_update(size, rows, sft, device, whole=whole, processes=processes)


def need_of_loop(
    size: ModelSize,
    settings: Settings,
    device: Device,
    *,
    models: int = 1,
    reference: bool = False,
) -> MemoryNeed:
    """The memory of a loop at the moment that holds most.

    While `models` are trained the sampler rests: a vLLM engine asleep, another policy
    with its weights. What training held is free again when trees grow.
    """
    train = settings.train
    sampling = need_of_sampling(size, settings, device)
    resting = sampling.parts["weights"] + sampling.parts.get(ENGINE, 0)
    if ENGINE in sampling.parts and settings.policy.vllm.sleep:
        resting = ASLEEP_BYTES
    rows = sampled_rows(settings)
    rows = rows._replace(rows=train.rows_together(rows.tokens))
    update = need_of_update(
        size,
        rows,
        train,
        device,
        whole=train.rows_per_microbatch,
        processes=settings.run.processes,
        models=models,
        reference=reference,
    )
    update.parts["sampler at rest"] = resting
    return max(sampling, update, key=lambda need: need.total)


def holds_reference(train: TrainSettings, model: str) -> bool:
    """Whether a whole model besides the trained one is the KL penalty's reference.

    The base under an adapter is there already.
    """
    if train.beta == 0 or train.reference is None:
        return False
    base = Path(adapter_base(model) or model)
    return train.lora.rank == 0 or Path(train.reference).resolve() != base.resolve()


def longest_rows(trees: Sequence[Path], writer: str, model: str) -> RowSize:
    """All steps of the trees as rows, all as long as the longest texts.

    Raises what `checked_trees` and `load_tokenizer` raise.
    """
    prompt = response = ""
    sampled = count = 0
    for path in trees:
        for _, tree in checked_trees(path, writer):
            count += len(tree.steps)
            for step in tree.steps:
                prompt = max(prompt, whole_text(tree, step), key=len)
                response = max(response, step.response, key=len)
                sampled = max(sampled, len(step.token_ids))
    tokenizer = load_tokenizer(model)
    # A demonstration has no tokens yet; it will have one more than its text.
    answered = sampled or len(tokenizer(response).input_ids) + 1
    tokens = len(prompt_ids(tokenizer, prompt)) + answered
    return RowSize(count, tokens, answered)


ROOM = 0.9
"""The share of the free memory that is used without lowering the number of rows."""


def fitting_settings(
    session: Session,
    path: str,
    need_of: Callable[[Settings], MemoryNeed | None],
    note: Callable[[str], None],
) -> Settings:
    """The session's settings, with fewer rows in a microbatch if memory is short.

    `path` is the setting with the rows. `need_of` estimates the memory of settings, or
    gives None if that cannot be estimated. `note` gets a line if the number is lowered.
    The session keeps it for --resume, which uses it again.

    Raises UsageError if even the fewest rows need more than is free.
    """
    section, _, name = path.partition(".")
    asked = getattr(getattr(session.settings, section), name)

    def use(rows: int) -> MemoryNeed | None:
        if rows != asked:
            changed = {section: {name: rows}}
            session.settings = with_changes(session.settings, **changed)
        return need_of(session.settings)

    recorded = _recorded(session, section, name)
    rows = recorded or asked
    because = "as it was begun"
    need = use(rows)
    if need is not None and need.device.is_gpu and need.advice:
        note(f"warning: {section} {need.advice}")
    elif need is not None and not need.device.is_gpu:
        short = need.total - ROOM * need.device.free
        # Several processes could settle on different numbers, and would then wait for
        # each other in vain.
        if short > 0 and recorded is None and process_count() == 1:
            because = f"which {need.sentence}"
            rows = need.lower(short) or 1
            need = use(rows) or need
        if need.total > need.device.free:
            remedy = need.advice
            if recorded is not None:
                remedy = f"{need.sentence}; free some, or begin anew with --overwrite"
            raise UsageError(f"{section}: {remedy}")
    if rows != asked:
        note(f"{path}: {rows} in place of {asked}, {because}")
    return session.settings


def _recorded(session: Session, section: str, name: str) -> int | None:
    """The number of rows with which the stage was begun, if it is resumed."""
    if not session.invocation.resume:
        return None
    begun = begun_with(session.run.path, session.plan.stage) or {}
    rows = begun.get(section, {}).get(name)
    return rows if isinstance(rows, int) else None
