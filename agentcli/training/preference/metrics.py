"""The lines that dpo writes to metrics.jsonl."""

from agentcli.training.loop.metrics import MetricsLine


class DpoMetrics(MetricsLine, kw_only=True):
    """One update of dpo.

    Means are over the pairs of the update, before it was made.
    """

    epoch: int
    """0-based."""
    loss: float
    """-log sigmoid(margin); ln 2 where policy and reference are the same."""
    accuracy: float
    """Share of pairs with a margin above 0; 0 where policy and reference are the same.
    """
    margin: float
    """chosen_reward - rejected_reward."""
    chosen_reward: float
    """beta * (log pi - log ref) of the trajectory that succeeded, without the steps
    that both begin with.
    """
    rejected_reward: float
    """The same of the trajectory that did not."""
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    pairs: int
    tokens: int
    """Response tokens trained on, both sides."""
    seconds: float
    """Spent training so far, without what a killed training spent after its last
    snapshot.
    """
