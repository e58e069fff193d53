"""The lines that objective ppo writes to metrics.jsonl."""

from agentcli.training.policy_gradient.metrics import PolicyFigures


class PpoMetrics(PolicyFigures, kw_only=True):
    """One update of policy and critic."""

    value_loss: float
    """Mean of (V - R)^2 over the rows, before the update; of the clipped loss, where
    there is one.
    """
    explained_variance: float
    """1 - Var(R - V) / Var(R) over the rows of the update, before it; 0 where all R are
    equal.
    """
    return_mean: float
    critic_grad_norm: float
    """Before clipping. grad_norm is the policy's."""
    seconds: float
    """Spent training so far, without what a killed training spent after its last
    snapshot.
    """
