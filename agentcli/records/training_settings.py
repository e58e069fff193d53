"""The settings of what trains: `sft` and `train`."""

from typing import Any, Literal

from msgspec import field

from agentcli.records.section import (
    Count,
    CountFromZero,
    NotNegative,
    Positive,
    Section,
    Share,
)

Aggregate = Literal["step", "token", "sequence"]


class TinySettings(Section, kw_only=True):
    """Shape of a policy made from scratch (sft --model tiny)."""

    hidden: Count = 96
    """Width of the residual stream."""
    layers: Count = 3
    """Transformer layers."""
    heads: Count = 4
    """Attention heads of a layer."""
    kv_heads: Count = 2
    """Heads of keys and values, shared by the attention heads."""
    intermediate: Count = 256
    """Width inside the feed-forward layers."""
    initializer_range: Positive = 0.08
    """Standard deviation of the first weights."""
    patch: Count = 8
    """Pixels of a side of the squares that pictures are cut into: a token each."""
    eye_layers: Count = 1
    """Layers of the eye, in a world with pictures; it is as wide as the model."""


class LoraSettings(Section, kw_only=True):
    """PEFT adapter; rank 0 trains all weights."""

    rank: CountFromZero = 0
    """Rank of the adapter; 0: train all weights."""
    alpha: Count = 16
    """The adapter's output is scaled by alpha / rank."""
    dropout: Share = 0.0
    """Share of the adapter's inputs that is dropped in training."""
    bits: Literal[4, 32] = 32
    """Bits of a weight of the model below the adapter while it is trained. 4: NF4 through
    bitsandbytes, on a GPU (QLoRA).
    """


TINY = "tiny"
"""The value of sft.model that has a policy made from scratch."""


class SftSettings(Section, kw_only=True):
    """Supervised fine-tuning on per-step samples."""

    model: str | None = None
    """A model directory, a hub id, or `tiny`."""
    updates: Count | None = None
    """Optimiser updates; None: `epochs` passes."""
    epochs: Positive = 3.0
    """Passes over the samples, where `updates` is None."""
    samples_per_update: Count = 16
    """Samples of one optimiser update."""
    samples_per_microbatch: Count = 16
    """Samples run together; fewer take less memory."""
    learning_rate: Positive | None = None
    """None: 1e-5, and 3e-3 for `tiny`, which learns nothing at a real model's rate."""
    schedule: str = "cosine"
    """Course of the learning rate: a scheduler of transformers by name."""
    warmup_ratio: Share = 0.03
    """Share of the updates in which the learning rate rises."""
    weight_decay: NotNegative = 0.0
    """AdamW's weight decay."""
    max_length: Count = 4096
    """Prompt plus response, in tokens; a longer sample is refused."""
    packing: Literal["auto", "on", "off"] = "auto"
    """Whether samples of an update share sequences: a prefix that several begin with is
    run once, and short ones stand side by side. It changes losses by rounding alone.
    auto: where it saves enough.
    """
    sharding: Literal["none", "fsdp"] = "none"
    """What the processes that torchrun started hold. none: each the whole model and its
    optimiser (DDP). fsdp: each a share of both (FSDP2).
    """
    bf16: bool | None = None
    """Compute in bfloat16 under autocast: less time where the processor has it. Weights
    and moments stay in float32. None: on a GPU.
    """
    gradient_checkpointing: bool | None = None
    """Compute activations again in the backward pass: less memory, more time.
    None: on a GPU.
    """
    save_every_updates: Count = 50
    """A killed sft resumes from the last multiple of this."""
    tiny: TinySettings = field(default_factory=TinySettings)
    lora: LoraSettings = field(default_factory=LoraSettings)

    def learning_rate_of(self, model: str) -> float:
        """The learning rate for `model`."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 3e-3 if model == TINY else 1e-5


class TrainSettings(Section, kw_only=True):
    """How a policy learns from trees. Credit arrives as numbers.

    What only one objective has stands beside it (agentcli/training/).
    """

    objective: str = "policy-gradient"
    """policy-gradient, ppo (with a critic), offline-ppo (001), dpo, process-reward (a
    model that scores steps; PRM), or one of an installed package.
    """
    options: dict[str, Any] = field(default_factory=dict)
    """The objective's own settings (validated by the objective)."""
    credit: str | None = None
    """Name of the credit file (credit/<name>.jsonl); None: the only one there."""
    update: Literal["assigned", "critical", "all"] = "assigned"
    """Which steps are trained. assigned: those that have an advantage. critical: of
    these only the ones with a sibling (003, equation 13). all: also the only children
    that credit left out, with the advantage they inherit (eq. 16).
    """
    learning_rate: Positive = 1e-6
    """AdamW's learning rate, constant after the warm-up."""
    clip: Positive = 0.2
    """The probability ratio counts from 1 - clip to 1 + clip."""
    beta: NotNegative = 0.01
    """Weight of the KL penalty (k3) against `reference`."""
    reference: str | None = None
    """Model directory; None: the model that training starts from."""
    aggregate: Aggregate | None = None
    """The mean that the loss is. step: trajectories, of the mean over their steps of
    the mean over tokens (002 eq. 11). token: all tokens trained (003 eq. 2). sequence:
    responses, of the mean over tokens. None: the one that the credit's method comes
    with (credit/registry.py): token for carl, arpo, treerl and treerpo, else step.
    """
    epochs: Count = 1
    """Passes over the rows."""
    rows_per_update: Count = 256
    """Rows, or pairs for dpo."""
    rows_per_microbatch: Count = 64
    """Rows run together; dpo runs one pair, two whole trajectories, at a time."""
    packing: Literal["auto", "on", "off"] = "auto"
    """Whether rows of an update that begin alike share a sequence, where their common
    prefix is run once. It changes losses by rounding alone. auto: where it saves enough.
    Only policy-gradient packs.
    """
    bf16: bool | None = None
    """Compute in bfloat16 under autocast: less time where the processor has it. Weights
    and moments stay in float32. None: on a GPU.
    """
    gradient_checkpointing: bool | None = None
    """Compute activations again in the backward pass: less memory, more time.
    None: on a GPU.
    """
    sharding: Literal["none", "fsdp"] = "none"
    """What the processes that torchrun started hold. none: each the whole model and its
    optimiser (DDP). fsdp: each a share of both, and of the reference (FSDP2); only
    policy-gradient does.
    """
    order: Literal["rows", "trees"] = "rows"
    """What an epoch shuffles. rows: an update has rows of any tree. trees: whole trees,
    so that packing saves more and an update learns from fewer tasks.
    """
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    """adamw_8bit: AdamW with its moments in 8 bits (bitsandbytes), 2 bytes a parameter
    instead of 8.
    """
    adam_betas: tuple[Share, Share] = (0.9, 0.999)
    """AdamW's decay rates."""
    weight_decay: NotNegative = 0.0
    """AdamW's weight decay."""
    max_grad_norm: Positive = 1.0
    """A longer gradient is shortened to this norm."""
    warmup_updates: CountFromZero = 0
    """Updates in which the learning rate rises."""
    recompute_logprobs: bool = False
    """Replace the rollout's log-probabilities by the trainer's own before the first
    update.
    """
    carry_optimizer: bool = True
    """Go on with the optimiser state that lies beside the starting checkpoint, if one
    does.
    """
    save_every_updates: Count = 50
    """A killed train resumes from the last multiple of this."""
    lora: LoraSettings = field(default_factory=LoraSettings)
