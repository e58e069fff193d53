"""The settings of every stage: one vocabulary, one place.

A preset, a -c file and --set all speak of these fields by path (rollout.leaves, policy.temperature). Unknown fields are
errors. Units stand in names. Defaults are the papers' (SPARK appendix B.4) where they name a value. The settings of
one credit method or one world live beside it and are reached through `credit` and `environment.options`.
"""

from typing import Annotated, Any, Literal

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
CountFromZero = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class Section(msgspec.Struct, forbid_unknown_fields=True):
    """Base of all settings sections."""


class EnvironmentSettings(Section, kw_only=True):
    """Which world, which tasks, how the engines run."""

    name: str = "alfworld"
    data: str | None = None
    """Folder of the real data set; None: what the world's own variable names (ALFWORLD_DATA), else generated games."""
    split: str = "train"
    tasks: Count | None = None
    """Only the panel's first N tasks."""
    where: dict[str, list[str]] = {}
    """Keep tasks whose attribute (kind, room, ...) is one of these."""
    panel: str | None = None
    """A panel file, instead of a split."""
    max_steps: Count = 30
    """Horizon K: steps per episode."""
    processes: Count = 1
    """Engine processes."""
    deadline_seconds: Positive = 60.0
    """An engine call that takes longer is killed and becomes an errored leaf."""
    options: dict[str, Any] = {}
    """The world's own settings (validated by the world)."""


class PolicySettings(Section, kw_only=True):
    """Who answers a prompt."""

    kind: str = "transformers"
    """transformers, expert (a plan from the true state), search (an expert without knowledge of places), random."""
    model: str | None = None
    adapter: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    temperature: NotNegative = 0.4
    """0 is greedy."""
    max_tokens: Count = 512
    """Longest response, in tokens."""
    max_prompt_tokens: Count = 2048
    """A longer prompt is an error that names its step."""
    batch_rows: Count = 64
    """Most requests generated together."""
    linger_ms: NotNegative = 4.0
    """How long a batch that is not full waits for one more request."""


class PromptSettings(Section, kw_only=True):
    """How an observation becomes a message."""

    style: str = "full"
    """full: the papers' prompt. compact: the world's own short view (for tiny policies)."""
    history: CountFromZero = 5
    """Past (observation, action) pairs shown."""


class DemosSettings(Section, kw_only=True):
    """Demonstrations and what is wrong with them on purpose."""

    count: Count = 300
    """Episodes written."""
    policy: str = "search"
    """Any policy kind."""
    noise: Share = 0.0
    """Share of steps at which a random admissible action is executed instead; masked for imitation."""
    stray: Share = 0.0
    """Share of steps before which an inadmissible action (a repeat, a thing of another room) is tried; never imitated."""
    forget: Share = 0.0
    """Share of episodes in which the tool step (clean, heat, cool) is left out, or the second object."""
    overlook: Share = 0.0
    """Share of closed receptacles that are passed by without opening."""
    wander: Share = 1.0
    """Share of episodes that visit places in an order of their own; the others follow the order of the commands."""
    keep: Literal["all", "success"] = "success"
    """Which episodes are written."""


class TinySettings(Section, kw_only=True):
    """Shape of a policy made from scratch (sft --model tiny)."""

    hidden: Count = 96
    layers: Count = 3
    heads: Count = 4
    kv_heads: Count = 2
    intermediate: Count = 256
    initializer_range: Positive = 0.08


class LoraSettings(Section, kw_only=True):
    """PEFT adapter; rank 0 trains all weights."""

    rank: CountFromZero = 0
    alpha: Count = 16
    dropout: Share = 0.0


class SftSettings(Section, kw_only=True):
    """Supervised fine-tuning on per-step samples."""

    model: str | None = None
    """A model directory, a hub id, or `tiny`."""
    updates: Count | None = None
    """Optimiser updates; None: `epochs` passes."""
    epochs: Positive = 3.0
    samples_per_update: Count = 16
    samples_per_microbatch: Count = 16
    learning_rate: Positive = 1e-5
    schedule: str = "cosine"
    warmup_ratio: Share = 0.03
    weight_decay: NotNegative = 0.0
    max_length: Count = 4096
    """Prompt plus response, in tokens; a longer sample is refused."""
    tiny: TinySettings = msgspec.field(default_factory=TinySettings)
    lora: LoraSettings = msgspec.field(default_factory=LoraSettings)


class RolloutSettings(Section, kw_only=True):
    """How trees grow."""

    method: str = "chain"
    leaves: Count = 8
    """N: leaf budget of a tree; chain samples exactly N independent trajectories (the group size G)."""
    roots: Count = 4
    """M: trajectories that spark starts from the initial state."""
    branching: Count = 2
    """B: continuations of a state that is branched."""
    branch: str = "explore"
    """explore: where the policy says <explore>. fixed:P: with probability P after any step."""
    concurrency: Count = 32
    """Tasks in flight."""
    tasks_per_step: Count = 16
    """Tasks of one iteration of `run` (and of `rollout --iteration`)."""
    iteration: CountFromZero | None = None
    """Take the slice of the panel that this iteration of `run` takes, with its seed."""


class TrainSettings(Section, kw_only=True):
    """Clipped policy gradient with KL. Credit arrives as numbers."""

    credit: str | None = None
    """Name of the credit file (credit/<name>.jsonl); None: the only one there."""
    learning_rate: Positive = 1e-6
    clip: Positive = 0.2
    beta: NotNegative = 0.01
    """Weight of the KL penalty (k3) against `reference`."""
    reference: str | None = None
    """Model directory; None: the model that training starts from."""
    aggregate: Literal["step", "token", "sequence"] = "step"
    epochs: Count = 1
    rows_per_update: Count = 256
    rows_per_microbatch: Count = 64
    adam_betas: tuple[Share, Share] = (0.9, 0.999)
    weight_decay: NotNegative = 0.0
    max_grad_norm: Positive = 1.0
    warmup_updates: CountFromZero = 0
    recompute_logprobs: bool = False
    """Replace the rollout's log-probabilities by the trainer's own before the first update."""
    carry_optimizer: bool = True
    """Go on with the optimiser state that lies beside the starting checkpoint, if one does."""
    lora: LoraSettings = msgspec.field(default_factory=LoraSettings)


class EvaluationSettings(Section, kw_only=True):
    """Whole panels, each episode once."""

    split: str = "L0"
    tasks: Count | None = None
    samples: Count = 1
    """Episodes per task."""
    temperature: NotNegative | None = None
    """None: policy.temperature. 0 is greedy."""
    label: str | None = None
    """Name of the files in evaluation/; None: the split."""
    n: Count = 32
    """pass-at-k: samples per task."""
    k: Count = 16
    """pass-at-k: attempts allowed."""
    branching: Count = 4
    """test-time-branch: continuations sampled where the policy emits <explore>."""


class RunSettings(Section, kw_only=True):
    """The loop rollout -> assign-credit -> train."""

    iterations: Count = 120


class Settings(Section, kw_only=True):
    """Everything one command may need, fully resolved."""

    seed: int = 0
    environment: EnvironmentSettings = msgspec.field(default_factory=EnvironmentSettings)
    policy: PolicySettings = msgspec.field(default_factory=PolicySettings)
    prompt: PromptSettings = msgspec.field(default_factory=PromptSettings)
    demos: DemosSettings = msgspec.field(default_factory=DemosSettings)
    sft: SftSettings = msgspec.field(default_factory=SftSettings)
    rollout: RolloutSettings = msgspec.field(default_factory=RolloutSettings)
    credit: dict[str, Any] = msgspec.field(default_factory=lambda: {"method": "grpo"})
    """`method` and that method's own settings."""
    train: TrainSettings = msgspec.field(default_factory=TrainSettings)
    evaluation: EvaluationSettings = msgspec.field(default_factory=EvaluationSettings)
    run: RunSettings = msgspec.field(default_factory=RunSettings)
    threads: Count = 1
    """torch threads per process."""
