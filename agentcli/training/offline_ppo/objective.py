"""The objective `offline-ppo`: PPO on recorded steps, with a critic (Rare-tool)."""

from typing import Literal

from agentcli.records.section import NotNegative, Positive
from agentcli.training.critic.options import CriticOptions, Head
from agentcli.training.loop.metrics import MetricsLine
from agentcli.training.objectives import OF_SURROGATE, Objective


class OfflinePpoOptions(CriticOptions, kw_only=True):
    """The penalty of Rare-tool, and the critic; train.clip clips the surrogate."""

    head: Head = "mlp"
    """The value head of a new critic: linear or mlp. It outputs 0 at first."""
    beta: NotNegative = 0.1
    """Weight of the squared log-ratio (Rare-tool eq. 1), used instead of train.beta."""
    old: Literal["epoch", "start"] = "epoch"
    """The models of pi_old and V_old. epoch: those at the start of the epoch. start:
    those at the start of training, where a new critic outputs 0 everywhere.
    """
    stop_at: Positive = 0.2
    """If an update's mean squared log-ratio exceeds this, its epoch ends after it."""


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
    """Training time so far; time that a killed training spent after its last snapshot
    is not included.
    """


class OfflinePpo(Objective):
    """Learns from `return`, a part of the credit, minus the critic's value."""

    name = "offline-ppo"
    options = OfflinePpoOptions
    metrics = OfflinePpoMetrics
    trainer = "agentcli.training.offline_ppo.train:train_offline_ppo"
    credit_maker = "agentcli assign-credit --method rare-tool"
    reads_tokens = False
    unread = (
        *("update", "beta", "reference", "aggregate", "recompute_logprobs"),
        *OF_SURROGATE,
    )
