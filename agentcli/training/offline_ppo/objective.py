"""The objective `offline-ppo`: PPO on recorded steps, with a critic (001)."""

from typing import Literal

from agentcli.records.section import NotNegative, Positive
from agentcli.training.critic.options import CriticOptions, Head
from agentcli.training.loop.metrics import MetricsLine
from agentcli.training.objectives import Objective


class OfflinePpoOptions(CriticOptions, kw_only=True):
    """The penalty of 001, and the critic. train.clip is the clip of the surrogate."""

    head: Head = "mlp"
    """The value head of a critic that is made anew: linear or mlp. At first it says 0."""
    beta: NotNegative = 0.1
    """Weight of the squared log-ratio (001 eq. 1); train.beta is the policy gradient's."""
    old: Literal["epoch", "start"] = "epoch"
    """The models of pi_old and V_old. epoch: those that an epoch starts with. start:
    those that training starts from; then a critic that is made anew says 0 everywhere.
    """
    stop_at: Positive = 0.2
    """An update whose mean squared log-ratio exceeds this is the last of its epoch."""


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


class OfflinePpo(Objective):
    """Learns from the part `return` of the credit, less the critic's value."""

    name = "offline-ppo"
    options = OfflinePpoOptions
    metrics = OfflinePpoMetrics
    trainer = "agentcli.training.offline_ppo.train:train_offline_ppo"
    credit_maker = "agentcli assign-credit --method rare-tool"
    unread = ("update", "beta", "reference", "aggregate", "recompute_logprobs")
