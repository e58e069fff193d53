"""The objectives of `train`: what each one reads, its options, and where it trains.

These classes only declare, so nothing heavy is imported before `train` is called. Then
the class named by `training` does the work: a template whose hooks each objective fills
(`loop/template.py`). An installed package adds an objective under the entry-point group
`agentcli.objectives`.
"""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from agentcli.errors import UsageError
from agentcli.policies.load import accelerator
from agentcli.records.section import Count, NotNegative, Positive, Section, read
from agentcli.records.training_settings import SftSettings, TrainSettings
from agentcli.registry import Registry
from agentcli.training.metrics import (
    DpoMetrics,
    MetricsLine,
    OfflinePpoMetrics,
    PpoMetrics,
    ProcessRewardMetrics,
    TrainMetrics,
)

if TYPE_CHECKING:
    from agentcli.training.loop.job import Job


def check_sharding(
    section: str, settings: TrainSettings | SftSettings, processes: int
) -> None:
    """Raises UsageError if the sharding of `section` (train or sft) has no effect.

    Also for what is not done on Apple's GPU.
    """
    # First: what it refuses does not depend on sharding.
    _refuse_on_apple(section, settings, processes)
    if settings.sharding == "none":
        return
    if processes == 1:
        raise UsageError(
            f"{section}.sharding: fsdp, but there is one process; start several with "
            "`torchrun --nproc-per-node N -m agentcli ...`, in `run` with "
            "run.processes=N"
        )
    if settings.lora.bits == 4:
        raise UsageError(
            f"{section}.sharding: fsdp, but weights in 4 bits cannot be sharded; set "
            f"{section}.lora.bits=32 or {section}.sharding=none"
        )


def _refuse_on_apple(
    section: str, settings: TrainSettings | SftSettings, processes: int
) -> None:
    """Raises UsageError if Apple's GPU trains, and cannot do it in this way.

    NCCL and bitsandbytes are CUDA's. Autocast in bfloat16 was never tried there.
    """
    # sft has no choice of the optimiser.
    is_8_bit = getattr(settings, "optimizer", None) == "adamw_8bit"
    asked = {
        f"torchrun with {processes} processes": processes > 1,
        f"{section}.lora.bits=4": settings.lora.bits == 4,
        f"{section}.optimizer=adamw_8bit": is_8_bit,
        # None asks for nothing: it is bfloat16 on CUDA alone.
        f"{section}.bf16=true": settings.bf16 is True,
    }
    named = [name for name, is_asked in asked.items() if is_asked]
    # Asked last, because it imports torch, which takes seconds.
    if named and accelerator() == "mps":
        raise UsageError(
            f"{named[0]}: cannot be done on Apple's GPU (mps); leave it out, or train "
            "on CUDA"
        )


OBJECTIVES = {
    "policy-gradient": "agentcli.training.objectives:PolicyGradient",
    "dpo": "agentcli.training.objectives:DirectPreference",
    "offline-ppo": "agentcli.training.objectives:OfflinePpo",
    "process-reward": "agentcli.training.objectives:ProcessReward",
    "ppo": "agentcli.training.objectives:ProximalPolicy",
}

REGISTRY = Registry(
    "agentcli.objectives", OBJECTIVES, key="train.objective", kind="objective"
)


HANDED_OVER = ("credit", "reference", "carry_optimizer", "objective")
"""Settings by which the caller chose the inputs that it passes to the objective."""
OF_SURROGATE = (
    *("clip_high", "dual_clip", "ratio", "importance_cap"),
    *("tokens_per_response", "float32_head"),
)
"""Settings that only the surrogate of policy-gradient and ppo has."""


class Objective:
    """One way to learn from the trees of a rollout."""

    name: ClassVar[str]
    options: ClassVar[type[Section]] = Section
    """The class of train.options: settings of this objective alone. Section itself has
    no settings.
    """
    metrics: ClassVar[type[MetricsLine]]
    """The class of its metrics.jsonl lines."""
    training: ClassVar[str]
    """Its subclass of `TrainingTemplate` (loop/template.py) as module:class."""
    reads_credit: ClassVar[bool] = True
    """Whether it learns from credit, which then weights the steps."""
    takes_ratios: ClassVar[bool] = True
    """Whether its loss uses the ratio to the sampling policy, which greedy responses
    lack.
    """
    reads_tokens: ClassVar[bool] = True
    """Whether it learns from the tokens that were sampled, and not from texts."""
    trains_policy: ClassVar[bool] = True
    """Whether its checkpoint is a policy. Only then can a loop use the objective."""
    packs: ClassVar[bool] = False
    """Whether rows of an update may share a sequence (train.packing)."""
    shards: ClassVar[bool] = False
    """Whether its model may be sharded across processes (train.sharding)."""
    sees: ClassVar[bool] = False
    """Whether it can train a vision model on pictures."""
    unread: ClassVar[tuple[str, ...]] = ()
    """The settings of `train` that it ignores."""

    def train(
        self, job: Job[TrainSettings], trees: Path, credit: Path | None
    ) -> dict[str, Any]:
        """Trains as the job says. Returns the statistics for the manifest.

        Raises UsageError for a vision model if the objective supports only text.
        """
        from agentcli.policies.load import sees

        if not self.sees and sees(job.model):
            raise UsageError(
                f"train.objective {self.name}: {job.model} sees, and only "
                "policy-gradient trains such a model; set "
                "train.objective=policy-gradient"
            )
        inputs = [trees] if credit is None else [trees, credit]
        statistics: dict[str, Any] = self.load()(job).train(*inputs)
        return statistics

    def load(self) -> Any:
        """The class of its training, imported."""
        return resolve_name(self.training)

    def anchored(self, settings: TrainSettings) -> bool:
        """Whether the initial model is the reference in all iterations of a loop."""
        return False


Head = Literal["linear", "mlp"]
"""linear: one weight per feature. mlp: with a hidden layer of the model's width
(Rare-tool).
"""


class CriticOptions(Section, kw_only=True):
    """How the critic is created and trained."""

    critic: str | None = None
    """Directory of a critic to continue training, or of a model to make one from. None:
    the critic next to the starting checkpoint, or if there is none, a new critic made
    from the model that training starts from.
    """
    head: Head = "linear"
    """The value head of a new critic: linear or mlp. It outputs 0 at first."""
    critic_learning_rate: Positive | None = None
    """The critic's learning rate. None: train.learning_rate."""


RETURN = "return"
"""The part of a credit that a critic is trained on."""


class PpoOptions(CriticOptions, kw_only=True):
    """Options of the critic, and of how advantages are scaled."""

    value_clip: Positive | None = None
    """Clip range of V(s) around its value before training, in the critic's loss. None:
    no clipping.
    """
    whiten: bool = True
    """Normalise the advantages over all rows of the training to mean 0 and standard
    deviation 1.
    """


class PolicyGradient(Objective):
    """Learns from credit: one number per step."""

    name = "policy-gradient"
    metrics: ClassVar[type[MetricsLine]] = TrainMetrics
    training = "agentcli.training.policy_gradient.training:PolicyTraining"
    packs = True
    shards = True
    sees = True

    def anchored(self, settings: TrainSettings) -> bool:
        """Whether there is a KL penalty; it is relative to the loop's initial model."""
        return settings.beta > 0


class ProximalPolicy(PolicyGradient):
    """Learns from the credit ppo; its part `return` is the critic's target."""

    name = "ppo"
    options = PpoOptions
    metrics = PpoMetrics
    training = "agentcli.training.ppo:PpoTraining"
    # The critic reads whole prompts, one per row, as text, and is a second model.
    packs = False
    shards = False
    sees = False


class OfflinePpoOptions(CriticOptions, kw_only=True):
    """The penalty of Rare-tool, and the critic; train.clip clips the surrogate."""

    head: Head = "mlp"
    beta: NotNegative = 0.1
    """Weight of the squared log-ratio (Rare-tool eq. 1), used instead of train.beta."""
    old: Literal["epoch", "start"] = "epoch"
    """The models of pi_old and V_old. epoch: those at the start of the epoch. start:
    those at the start of training, where a new critic outputs 0 everywhere.
    """
    stop_at: Positive = 0.2
    """If an update's mean squared log-ratio exceeds this, its epoch ends after it."""
    most_rows: Count | None = None
    """Most actions that are learned from, drawn by the seed, so that rules of which one
    keeps more than another learn from equally many. None: all.
    """


class OfflinePpo(Objective):
    """Learns from `return`, a part of the credit, minus the critic's value."""

    name = "offline-ppo"
    options = OfflinePpoOptions
    metrics = OfflinePpoMetrics
    training = "agentcli.training.offline_ppo:OfflinePpoTraining"
    # An action may be the text of a note, of which no token was sampled.
    reads_tokens = False
    unread = (
        *("update", "beta", "reference", "aggregate", "recompute_logprobs"),
        *OF_SURROGATE,
    )


class DpoOptions(Section, kw_only=True):
    """The choice of pairs, and how far the policy may move."""

    beta: Positive = 0.1
    """DPO's beta (inverse temperature), used instead of train.beta."""
    pairs_per_task: Count = 8
    """Most (success, failure) pairs taken from one tree."""
    max_length: Count = 32768
    """Longest trajectory of a pair in tokens, over prompts and responses of all its
    steps; longer pairs are left out and counted.
    """


class DirectPreference(Objective):
    """Learns only from outcomes; the initial model is the reference."""

    name = "dpo"
    options = DpoOptions
    metrics = DpoMetrics
    training = "agentcli.training.preference:PreferenceTraining"
    reads_credit = False
    takes_ratios = False
    unread = (
        *("credit", "update", "clip", "beta", "aggregate", "recompute_logprobs"),
        # A microbatch is always one pair.
        *("rows_per_microbatch", "tokens_per_microbatch", "packing", "order"),
        *OF_SURROGATE,
    )


class ProcessRewardOptions(Section, kw_only=True):
    """Options for the target and the head."""

    target: str = "reward"
    """The part of the credit that is learned. reward (of grpo and others) is the
    success rate below the step, a Monte Carlo estimate of its value.
    """
    head: Head = "linear"
    """The head of a new model: linear or mlp. It outputs 0 at first."""


class ProcessReward(Objective):
    """Learns one part of the credit, read at the end of a step's response."""

    name = "process-reward"
    options = ProcessRewardOptions
    metrics = ProcessRewardMetrics
    training = "agentcli.training.process_reward:ProcessRewardTraining"
    takes_ratios = False
    reads_tokens = False
    trains_policy = False
    unread = (
        *("update", "beta", "clip", "reference", "aggregate"),
        *("recompute_logprobs", "carry_optimizer"),
        *OF_SURROGATE,
    )


def objective_names() -> list[str]:
    """Names of the built-in and installed objectives, sorted."""
    return REGISTRY.names()


def make_objective(name: str) -> Objective:
    """The objective with this name. Raises UsageError with the nearest name."""
    objective: Objective = REGISTRY.load(name)()
    return objective


def not_read(settings: TrainSettings) -> set[str]:
    """The settings that cannot affect the result of a training."""
    return {*HANDED_OVER, *make_objective(settings.objective).unread}


def options_of(settings: TrainSettings) -> Section:
    """The settings of train.options, typed and complete.

    Raises UsageError for an unknown objective or key, and for a bad value.
    """
    name = settings.objective
    kind = make_objective(name).options
    return read(settings.options, kind, "train.options.", f"objective {name}")
