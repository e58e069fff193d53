"""The settings of the training stages, `sft` and `train`."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from agentcli.records.section import (
    Count,
    CountFromZero,
    Decay,
    NotNegative,
    Positive,
    Section,
    Share,
)

Aggregate = Literal["step", "token", "sequence"]


class TinySettings(Section, kw_only=True):
    """Architecture of a policy trained from scratch (sft --model tiny)."""

    hidden: Count = 96
    """Width of the residual stream."""
    layers: Count = 3
    """Number of transformer layers."""
    heads: Count = 4
    """Attention heads per layer."""
    kv_heads: Count = 2
    """Heads for keys and values per layer, each shared by several attention heads."""
    intermediate: Count = 256
    """Width inside the feed-forward layers."""
    initializer_range: Positive = 0.08
    """Standard deviation of the initial weights."""
    patch: Count = 8
    """Side length, in pixels, of the squares that pictures are cut into, one token
    each.
    """
    eye_layers: Count = 1
    """Layers of the vision encoder, in a world with pictures; its width is `hidden`."""


class LoraSettings(Section, kw_only=True):
    """LoRA adapter (PEFT); with rank 0 all weights are trained."""

    rank: CountFromZero = 0
    """Rank of the adapter. 0: train all weights."""
    alpha: Count = 16
    """The output of the adapter is scaled by alpha / rank."""
    dropout: Share = 0.0
    """Dropout probability on the inputs of the adapter."""
    bits: Literal[4, 16, 32] = 32
    """Bits per weight of the frozen base model during training. 16: bfloat16; the
    adapter, and a critic's base, stay in float32. 4: NF4 through bitsandbytes, on a GPU (QLoRA).
    """


TINY = "tiny"
"""The value of sft.model that creates a policy from scratch."""


class SftSettings(Section, kw_only=True):
    """Supervised fine-tuning on samples of one step each."""

    model: str | None = None
    """A model directory, a hub id, or `tiny` for a new small model."""
    updates: Count | None = None
    """Number of optimiser updates. None: as many as `epochs` passes take."""
    epochs: Positive = 3.0
    """Passes over the samples, if `updates` is None."""
    samples_per_update: Count = 16
    """Samples per optimiser update."""
    samples_per_microbatch: Count = 16
    """Samples per forward pass; fewer need less memory. On a CPU fewer are taken where so
    many would not fit.
    """
    tokens_per_microbatch: Count | None = None
    """Most tokens of a forward pass, padding included, in the place of
    samples_per_microbatch: short samples are run many together. Samples of an update are
    sorted by length first; losses change only by rounding.
    """
    learning_rate: Positive | None = None
    """None: 1e-5, or 3e-3 for `tiny`, which does not learn at a large model's rate."""
    schedule: str = "cosine"
    """Learning rate schedule, by its name in transformers."""
    warmup_ratio: Share = 0.03
    """Share of the updates used for learning rate warm-up."""
    weight_decay: NotNegative = 0.0
    """AdamW's weight decay."""
    max_length: Count = 4096
    """Longest prompt plus response, in tokens; a longer sample is refused."""
    packing: Literal["auto", "on", "off"] = "auto"
    """Whether samples of an update share sequences: a common prefix is computed once,
    and short samples are put into one sequence. Losses change only by rounding. auto:
    when it saves enough.
    """
    sharding: Literal["none", "fsdp"] = "none"
    """What each process that torchrun started holds. none: the whole model and its
    optimiser (DDP). fsdp: a share of both (FSDP2).
    """
    bf16: bool | None = None
    """Compute in bfloat16 under autocast, which is faster on hardware that supports it.
    Weights and moments stay in float32. None: on a GPU.
    """
    gradient_checkpointing: bool | None = None
    """Recompute activations in the backward pass: less memory, more time. None: on a
    GPU.
    """
    save_every_updates: Count = 50
    """A killed sft resumes from the last multiple of this number of updates."""
    tiny: TinySettings = field(default_factory=TinySettings)
    lora: LoraSettings = field(default_factory=LoraSettings)

    def learning_rate_of(self, model: str) -> float:
        """The learning rate for `model`."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 3e-3 if model == TINY else 1e-5

    @property
    def microbatch_limit(self) -> str:
        """The setting that limits a forward pass."""
        limited = self.tokens_per_microbatch is not None
        return f"{'tokens' if limited else 'samples'}_per_microbatch"

    def rows_together(self, longest: int) -> int:
        """Samples of a forward pass if all have as many tokens as the longest."""
        return _rows(self.samples_per_microbatch, self.tokens_per_microbatch, longest)


class TrainSettings(Section, kw_only=True):
    """How a policy learns from trees and their credit.

    Settings of a single objective are defined next to it (agentcli/training/).
    """

    objective: str = "policy-gradient"
    """policy-gradient, ppo (with a critic), offline-ppo (Rare-tool), dpo,
    process-reward (trains a model that scores steps, a PRM), or the objective of an
    installed package.
    """
    options: dict[str, Any] = field(default_factory=dict)
    """The settings of this objective (validated by the objective)."""
    credit: str | None = None
    """Name of the credit file (credit/<name>.jsonl). None: the only one in the run."""
    update: Literal["assigned", "critical", "forked", "all", "spread"] = "assigned"
    """Which steps are trained on. assigned: steps with an advantage. critical: only
    those of them that have a sibling (CARL, equation 13). forked: the same, but in the
    first Tree.roots trajectories only those whose state was forked later. all: also
    only children without an assigned advantage, with the one they inherit (eq. 16).
    spread: those with an advantage in trees where one of them is not 0, so that groups
    without spread do not count in any mean (DAPO; see rollout.budget groups=N).
    """
    learning_rate: Positive = 1e-6
    """AdamW's learning rate, constant after warm-up."""
    clip: Positive = 0.2
    """Clip range: the probability ratio is clipped to [1 - clip, 1 + clip]."""
    clip_high: Positive | None = None
    """Clip range above 1, as in [1 - clip, 1 + clip_high] (DAPO's clip-higher, 0.28).
    None: clip.
    """
    dual_clip: Annotated[float, Meta(ge=1, le=1e9)] | None = None
    """Where the advantage A is negative, the surrogate is at least dual_clip * A (Ye et
    al. 2020, who take 3). None: a ratio far above 1 has no bound there.
    """
    ratio: Literal["token", "sequence"] = "token"
    """The ratio of probabilities. token: each token's own. sequence: one for a whole
    response, the geometric mean over its tokens (GSPO eq. 7), which is clipped as a
    whole; GSPO has aggregate sequence, clip 3e-4 and clip_high 4e-4.
    """
    importance_cap: Positive | None = None
    """Truncated importance sampling between sampler and trainer (TIS): the surrogate of
    a token is multiplied by min(importance_cap, exp(old - sampled)), where `old` are
    the trainer's log-probabilities before the first update (recompute_logprobs is
    implied) and `sampled` the rollout's. 2 is usual. None: no such weight.
    """
    beta: NotNegative = 0.01
    """Weight of the KL penalty (k3) against `reference`."""
    reference: str | None = None
    """Model directory of the KL reference. None: the model that training starts from,
    its adapter included.
    """
    aggregate: Aggregate | None = None
    """How the loss is averaged. step: over tokens, then steps, then trajectories
    (RewardFlow eq. 11). token: over all trained tokens (CARL eq. 2). sequence: over
    tokens, then responses. None: the default of the credit method (credit/registry.py):
    token for carl, arpo, treerl and treerpo, else step.
    """
    tokens_per_response: Count | None = None
    """This constant in the place of the length of every response when the loss is
    averaged, so that long responses weigh more (Dr. GRPO, which takes the longest
    possible length). None: the lengths.
    """
    epochs: Count = 1
    """Passes over the rows."""
    rows_per_update: Count = 256
    """Rows per optimiser update; pairs for dpo."""
    rows_per_microbatch: Count = 64
    """Rows per forward pass. On a CPU fewer are taken where so many would not fit. dpo
    runs one pair, two whole trajectories, at a time.
    """
    tokens_per_microbatch: Count | None = None
    """Most tokens of a forward pass, padding included, in the place of
    rows_per_microbatch: short rows are run many together. Rows that share a prefix count
    as if they did not. Losses change only by rounding.
    """
    packing: Literal["auto", "on", "off"] = "auto"
    """Whether rows of an update that begin alike share a sequence, so that their common
    prefix is computed once. Losses change only by rounding. auto: when it saves enough.
    Only for policy-gradient.
    """
    bf16: bool | None = None
    """Compute in bfloat16 under autocast, which is faster on hardware that supports it.
    Weights and moments stay in float32. None: on a GPU.
    """
    gradient_checkpointing: bool | None = None
    """Recompute activations in the backward pass: less memory, more time. None: on a
    GPU.
    """
    sharding: Literal["none", "fsdp"] = "none"
    """What each process that torchrun started holds. none: the whole model and its
    optimiser (DDP). fsdp: a share of both, and of the reference (FSDP2); only for
    policy-gradient.
    """
    order: Literal["rows", "trajectories", "trees"] | None = None
    """What is shuffled in an epoch. rows: an update mixes rows of all trees.
    trajectories, trees: the rows of each follow one another, so packing saves more, but
    an update covers fewer tasks. None: trajectories for conversations that grow, else rows.
    """
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    """adamw_8bit: AdamW with 8-bit moments (bitsandbytes), 2 bytes per parameter
    instead of 8.
    """
    adam_betas: tuple[Decay, Decay] = (0.9, 0.999)
    """AdamW's beta1 and beta2."""
    adam_epsilon: Positive = 1e-8
    """What AdamW adds to the root of the second moment. Where nearly all groups are alike,
    gradients fall by a thousand, and AdamW steps as far as ever, in the direction of
    noise: policies forget how to answer. 1e-5 keeps such steps small.
    """
    weight_decay: NotNegative = 0.0
    """AdamW's weight decay."""
    max_grad_norm: Positive = 1.0
    """Gradients are clipped to this norm."""
    warmup_updates: CountFromZero = 0
    """Number of updates over which the learning rate warms up."""
    recompute_logprobs: bool = False
    """Before the first update, replace the rollout's log-probabilities by ones that the
    trainer computes. Implied by importance_cap, and by lora.bits 4, where the sampler
    has other weights.
    """
    float32_head: bool = False
    """Run the language-model head in float32 although the rest computes in bfloat16:
    rounded logits are far apart, above all at low temperatures. An engine of vLLM does
    so, too.
    """
    carry_optimizer: bool = True
    """Continue with the optimiser state next to the starting checkpoint, if there is
    one.
    """
    save_every_updates: Count = 50
    """A killed train resumes from the last multiple of this number of updates."""
    lora: LoraSettings = field(default_factory=LoraSettings)

    @property
    def recomputes(self) -> bool:
        """Whether the trainer computes the log-probabilities `old` itself."""
        other_weights = self.lora.bits == 4
        return (
            self.recompute_logprobs or other_weights or self.importance_cap is not None
        )

    @property
    def microbatch_limit(self) -> str:
        """The setting that limits a forward pass."""
        limited = self.tokens_per_microbatch is not None
        return f"{'tokens' if limited else 'rows'}_per_microbatch"

    def rows_together(self, longest: int) -> int:
        """Rows of a forward pass if all have as many tokens as the longest."""
        return _rows(self.rows_per_microbatch, self.tokens_per_microbatch, longest)


def _rows(rows: int, tokens: int | None, longest: int) -> int:
    return rows if tokens is None else max(1, tokens // longest)
