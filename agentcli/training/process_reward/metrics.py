"""The lines that objective process-reward writes to metrics.jsonl."""

from agentcli.training.loop.metrics import MetricsLine


class ProcessRewardMetrics(MetricsLine, kw_only=True):
    """One update of a process reward model."""

    epoch: int
    loss: float
    """Mean of (score - target)^2 over the rows, before the update."""
    explained_variance: float
    """1 - Var(target - score) / Var(target) over the rows of the update, before it."""
    target_mean: float
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    seconds: float
    """Spent training so far, without what a killed training spent after its last
    snapshot.
    """
