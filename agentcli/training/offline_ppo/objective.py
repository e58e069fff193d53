"""The objective `offline-ppo`: PPO on recorded steps, with a critic (001)."""

from typing import Literal

from agentcli.records.section import NotNegative, Positive
from agentcli.training.critic.options import CriticOptions, Head
from agentcli.training.objectives import Objective
from agentcli.training.offline_ppo.metrics import OfflinePpoMetrics


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


class OfflinePpo(Objective):
    """Learns from the part `return` of the credit, less the critic's value."""

    name = "offline-ppo"
    options = OfflinePpoOptions
    metrics = OfflinePpoMetrics
    trainer = "agentcli.training.offline_ppo.train:train_offline_ppo"
    credit_maker = "agentcli assign-credit --method rare-tool"
    unread = ("update", "beta", "reference", "aggregate", "recompute_logprobs")
