"""The lines of metrics.jsonl: one class for each kind of training.

Only types, so that a table or a schema can read them without torch. Fields are written
in the order of their declaration.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from agentcli.records.types import SCHEMA_VERSION, Record


class MetricsLine(Record, kw_only=True):
    """Base class of all lines."""

    schema_version: int = SCHEMA_VERSION
    update: int
    """Number of the update, from 1."""
    if TYPE_CHECKING:
        # Every class declares it as its last field: fields are written in the order of
        # their declaration.
        seconds: float
        """Training time so far; time that a killed training spent after its last
        snapshot is not included.
        """


def means_of(lines: Sequence[MetricsLine], names: Iterable[str]) -> dict[str, float]:
    """The means of the named fields over all lines; empty without lines."""
    if not lines:
        return {}
    return {name: fmean(getattr(line, name) for line in lines) for name in names}


class SftMetrics(MetricsLine, kw_only=True):
    """Some updates of `sft`: means over the updates since the previous line."""

    loss: float
    """Negative log-likelihood, in nats per response token."""
    token_accuracy: float
    grad_norm: float
    learning_rate: float
    tokens: int
    """Response tokens trained on so far."""
    seconds: float


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


class PpoMetrics(PolicyFigures, kw_only=True):
    """One update of policy and critic."""

    value_loss: float
    """Mean of (V - R)^2 over the rows, before the update; the clipped loss if
    value_clip is set.
    """
    explained_variance: float
    """1 - Var(R - V) / Var(R) over the rows of the update, before it; 0 if all R are
    equal.
    """
    return_mean: float
    critic_grad_norm: float
    """Gradient norm of the critic before clipping; grad_norm is the policy's."""
    seconds: float


class OfflinePpoMetrics(MetricsLine, kw_only=True):
    """One update of actor and critic, with metrics from before the update.

    Means are over the actions of the update, by weight. Updates that an early stop
    skips have no line, but are counted in `update`.
    """

    epoch: int
    """Number of the epoch, from 0."""
    loss: float
    """The actor's loss: beta * squared_log_ratio - surrogate."""
    surrogate: float
    squared_log_ratio: float
    """Mean of (log pi - log pi_old)^2, in square nats: Rare-tool eq. 2."""
    entropy: float
    """In nats per token, at the temperature of each row."""
    clip_fraction: float
    """Share of the actions that are clipped."""
    ratio_mean: float
    value_loss: float
    """Mean of (V - R)^2."""
    explained_variance: float
    """1 - Var(R - V) / Var(R); 0 where all R are equal."""
    return_mean: float
    advantage_mean: float
    stopped: bool
    """Whether the squared log-ratio ended the epoch after this update."""
    grad_norm: float
    """Gradient norm of the actor, before clipping."""
    critic_grad_norm: float
    """Gradient norm of the critic, before clipping."""
    learning_rate: float
    """The actor's learning rate."""
    rows: int
    tokens: int
    """Number of response tokens trained on."""
    seconds: float


class DpoMetrics(MetricsLine, kw_only=True):
    """One update of dpo.

    Means are over the pairs of the update, before it was made.
    """

    epoch: int
    """Number of the epoch, from 0."""
    loss: float
    """-log sigmoid(margin); ln 2 if policy and reference are the same."""
    accuracy: float
    """Share of pairs with a margin above 0; 0 if policy and reference are the same."""
    margin: float
    """chosen_reward - rejected_reward."""
    chosen_reward: float
    """beta * (log pi - log ref) of the successful trajectory, without the steps that
    both trajectories begin with.
    """
    rejected_reward: float
    """The same for the failed trajectory."""
    grad_norm: float
    """Gradient norm before clipping."""
    learning_rate: float
    pairs: int
    tokens: int
    """Response tokens trained on, both sides."""
    seconds: float


class ProcessRewardMetrics(MetricsLine, kw_only=True):
    """One update of a process reward model."""

    epoch: int
    loss: float
    """Mean of (score - target)^2 over the rows, before the update."""
    explained_variance: float
    """1 - Var(target - score) / Var(target) over the rows of the update, before it."""
    target_mean: float
    grad_norm: float
    """Gradient norm before clipping."""
    learning_rate: float
    seconds: float
