"""The lines that objective offline-ppo writes to metrics.jsonl."""

from agentcli.training.loop.metrics import MetricsLine


class OfflinePpoMetrics(MetricsLine, kw_only=True):
    """One update of actor and critic. All figures are from before the update.

    Means are over the actions of the update, by their weights. The updates that an
    early stop leaves out have no line, and `update` counts them.
    """

    epoch: int
    """0-based."""
    loss: float
    """The actor's: beta * squared_log_ratio - surrogate."""
    surrogate: float
    squared_log_ratio: float
    """Mean of (log pi - log pi_old)^2, in square nats: 001 eq. 2."""
    entropy: float
    """Nats per token, at the temperature of each row."""
    clip_fraction: float
    """Share of the actions."""
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
    """Of the actor, before clipping."""
    critic_grad_norm: float
    """Before clipping."""
    learning_rate: float
    """The actor's."""
    rows: int
    tokens: int
    """Response tokens trained on."""
    seconds: float
    """Spent training so far, without what a killed training spent after its last
    snapshot.
    """
