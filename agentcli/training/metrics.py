"""The lines of metrics.jsonl, and the callback through which a trainer tells how far it is."""

from collections.abc import Callable

from agentcli.records.types import SCHEMA_VERSION, Record

Progress = Callable[[int, int, dict[str, float]], None]
"""Called with (updates done, updates in all, figures to show): once before the first update, without figures, and after each
metrics line."""


class TrainMetrics(Record, kw_only=True):
    """One update of the policy gradient. Means are over the tokens that were trained on, unless said otherwise."""

    schema_version: int = SCHEMA_VERSION
    update: int
    """1-based, updates that were skipped not counted."""
    epoch: int
    """0-based."""
    loss: float
    surrogate: float
    """Weighted as the loss."""
    kl: float
    """k3 against the reference, weighted as the loss; 0 without one."""
    entropy: float
    """Nats per token. Log-probabilities, kl and entropy are of softmax(logits / T), T the temperature that a row was sampled at."""
    clip_fraction: float
    ratio_mean: float
    ratio_max: float
    gap_mean: float
    """|trainer - sampler| of the sampled tokens' log-probabilities, in nats, the trainer's from this update's own forward pass,
    both at the temperature of the sampler's:
    before the first update it is what sampler and trainer disagree by, later it also holds what was learned."""
    gap_max: float
    gap_k3: float
    """Estimate of KL(sampler || trainer)."""
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    rows: int
    rows_skipped: int
    """Rows of this update that cannot have a gradient (advantage 0 and beta 0, or weight 0)."""
    skipped_share: float
    """rows_skipped of all rows of the update."""
    tokens: int
    """Response tokens trained on."""
    advantage_mean: float
    """This and the next three: over all rows of the update, skipped ones included."""
    advantage_std: float
    advantage_min: float
    advantage_max: float
    seconds: float
    """Spent training so far; what a killed training spent after its last snapshot is not counted."""


class SftMetrics(Record, kw_only=True):
    """Means over the updates since the line before."""

    schema_version: int = SCHEMA_VERSION
    update: int
    loss: float
    """Nats per response token."""
    token_accuracy: float
    grad_norm: float
    learning_rate: float
    tokens: int
    """Response tokens trained on so far."""
    seconds: float
    """Spent training so far; what a killed training spent after its last snapshot is not counted."""


class DpoMetrics(Record, kw_only=True):
    """One update of dpo. Means are over the pairs of the update, before it was made."""

    schema_version: int = SCHEMA_VERSION
    update: int
    """1-based."""
    epoch: int
    """0-based."""
    loss: float
    """-log sigmoid(margin); ln 2 where policy and reference are the same."""
    accuracy: float
    """Share of pairs with a margin above 0; 0 where policy and reference are the same."""
    margin: float
    """chosen_reward - rejected_reward."""
    chosen_reward: float
    """beta * (log pi - log ref) of the trajectory that succeeded, without the steps that both begin with."""
    rejected_reward: float
    """The same of the one that did not."""
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    pairs: int
    tokens: int
    """Response tokens trained on, both sides."""
    seconds: float
    """Spent training so far; what a killed training spent after its last snapshot is not counted."""
