"""The objective `policy-gradient`: a clipped surrogate per step, with a KL penalty."""

from typing import ClassVar

from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.metrics import MetricsLine
from agentcli.training.objectives import Objective


class PolicyFigures(MetricsLine, kw_only=True):
    """The figures of a policy in one update.

    Means are over the tokens that were trained on, unless said otherwise.
    """

    epoch: int
    """0-based."""
    loss: float
    surrogate: float
    """Weighted as the loss."""
    kl: float
    """k3 against the reference, weighted as the loss; 0 without one."""
    entropy: float
    """Nats per token. Log-probabilities, kl and entropy are of softmax(logits / T), T
    the temperature that a row was sampled at.
    """
    clip_fraction: float
    ratio_mean: float
    ratio_max: float
    gap_mean: float
    """|trainer - sampler| of the sampled tokens' log-probabilities, in nats, both at the
    temperature of the sampler's. The trainer's are from this update's forward pass, so
    that after the first update the gap also holds what was learned.
    """
    gap_max: float
    gap_k3: float
    """Estimate of KL(sampler || trainer)."""
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    rows: int
    rows_skipped: int
    """Rows of this update that cannot have a gradient (advantage 0 and beta 0, or
    weight 0).
    """
    skipped_share: float
    """rows_skipped, as a share of all rows of the update."""
    tokens: int
    """Response tokens trained on."""
    tokens_read: int = 0
    """Prompt and response tokens of the rows."""
    tokens_saved: int = 0
    """Of these, the ones that packing did not run again (train.packing)."""
    advantage_mean: float
    """The four figures of advantages are over all rows, skipped ones included."""
    advantage_std: float
    advantage_min: float
    advantage_max: float


class TrainMetrics(PolicyFigures, kw_only=True):
    """One update of the policy gradient."""

    seconds: float
    """Spent training so far, without what a killed training spent after its last
    snapshot.
    """


class PolicyGradient(Objective):
    """Learns from credit, which arrives as a number per step."""

    name = "policy-gradient"
    metrics: ClassVar[type[MetricsLine]] = TrainMetrics
    trainer = "agentcli.training.policy_gradient.train:train_policy"
    packs = True
    shards = True
    sees = True

    def anchored(self, settings: TrainSettings) -> bool:
        """The KL penalty is against the loop's start."""
        return settings.beta > 0
