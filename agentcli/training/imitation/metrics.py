"""The metrics.jsonl lines of imitation."""

from agentcli.training.loop.metrics import MetricsLine


class SftMetrics(MetricsLine, kw_only=True):
    """Means over the updates since the previous line."""

    loss: float
    """Negative log-likelihood, in nats per response token."""
    token_accuracy: float
    grad_norm: float
    learning_rate: float
    tokens: int
    """Response tokens trained on so far."""
    seconds: float
    """Training time so far; time that a killed training spent after its last snapshot
    is not included.
    """
