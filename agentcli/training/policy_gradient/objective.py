"""The objective `policy-gradient`: a clipped surrogate per step with a KL penalty."""

from typing import ClassVar

from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.metrics import MetricsLine
from agentcli.training.objectives import Objective


class PolicyFigures(MetricsLine, kw_only=True):
    """Metrics of a policy in one update.

    Means are over the tokens trained on, unless stated otherwise.
    """

    epoch: int
    """Number of the epoch, from 0."""
    loss: float
    surrogate: float
    """Mean with the weights of the loss."""
    kl: float
    """k3 estimate of the KL to the reference, weighted like the loss; 0 without a
    reference.
    """
    entropy: float
    """In nats per token. Log-probabilities, kl and entropy refer to softmax(logits /
    T), where T is the temperature at which the row was sampled.
    """
    clip_fraction: float
    ratio_mean: float
    ratio_max: float
    gap_mean: float
    """|trainer - sampler| of the sampled tokens' log-probabilities, in nats, both at
    the temperature of the sampler's. The trainer's come from this update's forward
    pass, so after the first update the gap also includes what was learned.
    """
    gap_max: float
    gap_k3: float
    """Estimate of KL(sampler || trainer)."""
    grad_norm: float
    """Gradient norm before clipping."""
    learning_rate: float
    rows: int
    rows_skipped: int
    """Rows of this update that cannot have a gradient (advantage 0 and beta 0, or
    weight 0).
    """
    skipped_share: float
    """rows_skipped as a share of all rows of the update."""
    tokens: int
    """Number of response tokens trained on."""
    tokens_read: int = 0
    """Prompt and response tokens of the rows."""
    tokens_saved: int = 0
    """Those of them that packing saved (train.packing)."""
    advantage_mean: float
    """The four advantage metrics cover all rows, including skipped ones."""
    advantage_std: float
    advantage_min: float
    advantage_max: float


class TrainMetrics(PolicyFigures, kw_only=True):
    """One update of the policy gradient."""

    seconds: float
    """Training time so far; time that a killed training spent after its last snapshot
    is not included.
    """


class PolicyGradient(Objective):
    """Learns from credit: one number per step."""

    name = "policy-gradient"
    metrics: ClassVar[type[MetricsLine]] = TrainMetrics
    trainer = "agentcli.training.policy_gradient.train:train_policy"
    packs = True
    shards = True
    sees = True

    def anchored(self, settings: TrainSettings) -> bool:
        """Whether there is a KL penalty; it is relative to the loop's initial model."""
        return settings.beta > 0
