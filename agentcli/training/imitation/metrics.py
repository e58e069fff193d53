"""The lines that imitation writes to metrics.jsonl."""

from agentcli.training.loop.metrics import MetricsLine


class SftMetrics(MetricsLine, kw_only=True):
    """Means over the updates since the line before."""

    loss: float
    """Nats per response token."""
    token_accuracy: float
    grad_norm: float
    learning_rate: float
    tokens: int
    """Response tokens trained on so far."""
    seconds: float
    """Spent training so far, without what a killed training spent after its last
    snapshot.
    """
