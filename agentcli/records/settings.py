"""The settings of every stage: one vocabulary, one place.

A preset, a -c file and --set all speak of these fields by path (rollout.leaves, policy.temperature). Unknown fields are
errors. Units stand in names. Defaults are the papers' (SPARK appendix B.4) where they name a value. The settings of
one credit method or one world live beside it and are reached through `credit` and `environment.options`.
"""

from typing import Any, Literal

import msgspec


class Section(msgspec.Struct, forbid_unknown_fields=True):
    """Base of all settings sections."""


class EnvironmentSettings(Section, kw_only=True):
    """Which world, which tasks, how the engines run."""

    name: str = "alfworld"
    data: str | None = None
    """Folder of the real data set; None: what the world's own variable names (ALFWORLD_DATA), else generated games."""
    split: str = "train"
    tasks: int | None = None
    """Only the panel's first N tasks."""
    where: dict[str, list[str]] = {}
    """Keep tasks whose attribute (kind, room, ...) is one of these."""
    panel: str | None = None
    """A panel file, instead of a split."""
    max_steps: int = 30
    """Horizon K: steps per episode."""
    processes: int = 1
    """Engine processes."""
    deadline_seconds: float = 60.0
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
    temperature: float = 0.4
    """0 is greedy."""
    max_tokens: int = 512
    """Longest response, in tokens."""
    max_prompt_tokens: int = 2048
    """A longer prompt is an error that names its step."""
    batch_rows: int = 64
    """Most requests generated together."""
    linger_ms: float = 4.0
    """How long a batch that is not full waits for one more request."""


class PromptSettings(Section, kw_only=True):
    """How an observation becomes a message."""

    style: str = "full"
    """full: the papers' prompt. compact: the world's own short view (for tiny policies)."""
    history: int = 5
    """Past (observation, action) pairs shown."""


class DemosSettings(Section, kw_only=True):
    """Demonstrations and what is wrong with them on purpose."""

    count: int = 300
    """Episodes written."""
    policy: str = "search"
    """Any policy kind."""
    noise: float = 0.0
    """Share of steps at which a random admissible action is executed instead; masked for imitation."""
    stray: float = 0.0
    """Share of steps before which an inadmissible action (a repeat, a thing of another room) is tried; never imitated."""
    forget: float = 0.0
    """Share of episodes in which the tool step (clean, heat, cool) is left out, or the second object."""
    overlook: float = 0.0
    """Share of closed receptacles that are passed by without opening."""
    keep: Literal["all", "success"] = "success"
    """Which episodes are written."""


class TinySettings(Section, kw_only=True):
    """Shape of a policy made from scratch (sft --model tiny)."""

    hidden: int = 96
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 256
    initializer_range: float = 0.08


class LoraSettings(Section, kw_only=True):
    """PEFT adapter; rank 0 trains all weights."""

    rank: int = 0
    alpha: int = 16
    dropout: float = 0.0


class SftSettings(Section, kw_only=True):
    """Supervised fine-tuning on per-step samples."""

    model: str | None = None
    """A model directory, a hub id, or `tiny`."""
    updates: int | None = None
    """Optimiser updates; None: `epochs` passes."""
    epochs: float = 3.0
    samples_per_update: int = 16
    samples_per_microbatch: int = 16
    learning_rate: float = 1e-5
    schedule: str = "cosine"
    warmup_ratio: float = 0.03
    weight_decay: float = 0.0
    max_length: int = 4096
    """Prompt plus response, in tokens; a longer sample is refused."""
    tiny: TinySettings = msgspec.field(default_factory=TinySettings)
    lora: LoraSettings = msgspec.field(default_factory=LoraSettings)


class RolloutSettings(Section, kw_only=True):
    """How trees grow."""

    method: str = "chain"
    leaves: int = 8
    """N: leaf budget of a tree; chain samples exactly N independent trajectories (the group size G)."""
    roots: int = 4
    """M: trajectories that spark starts from the initial state."""
    branching: int = 2
    """B: continuations of a state that is branched."""
    branch: str = "explore"
    """explore: where the policy says <explore>. fixed:P: with probability P after any step."""
    concurrency: int = 32
    """Tasks in flight."""
    tasks_per_step: int = 16
    """Tasks of one iteration of `run` (and of `rollout --iteration`)."""
    iteration: int | None = None
    """Take the slice of the panel that this iteration of `run` takes, with its seed."""


class TrainSettings(Section, kw_only=True):
    """Clipped policy gradient with KL. Credit arrives as numbers."""

    credit: str | None = None
    """Name of the credit file (credit/<name>.jsonl); None: the only one there."""
    learning_rate: float = 1e-6
    clip: float = 0.2
    beta: float = 0.01
    """Weight of the KL penalty (k3) against `reference`."""
    reference: str | None = None
    """Model directory; None: the model that training starts from."""
    aggregate: Literal["step", "token", "sequence"] = "step"
    epochs: int = 1
    rows_per_update: int = 256
    rows_per_microbatch: int = 64
    adam_betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    warmup_updates: int = 0
    recompute_logprobs: bool = False
    """Replace the rollout's log-probabilities by the trainer's own before the first update."""
    carry_optimizer: bool = True
    """Go on with the optimiser state that lies beside the starting checkpoint, if one does."""
    lora: LoraSettings = msgspec.field(default_factory=LoraSettings)


class EvaluationSettings(Section, kw_only=True):
    """Whole panels, each episode once."""

    split: str = "L0"
    tasks: int | None = None
    samples: int = 1
    """Episodes per task."""
    temperature: float | None = None
    """None: policy.temperature. 0 is greedy."""
    label: str | None = None
    """Name of the files in evaluation/; None: the split."""
    n: int = 32
    """pass-at-k: samples per task."""
    k: int = 16
    """pass-at-k: attempts allowed."""
    branching: int = 4
    """test-time-branch: continuations sampled where the policy emits <explore>."""
    vote: Literal["action"] = "action"


class RunSettings(Section, kw_only=True):
    """The loop rollout -> assign-credit -> train."""

    iterations: int = 120


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
    threads: int = 1
    """torch threads per process."""
