"""The objective `ppo`: the policy gradient, and a critic that learns the returns."""

from agentcli.records.section import Positive
from agentcli.training.critic.options import CriticOptions
from agentcli.training.policy_gradient.objective import PolicyFigures, PolicyGradient


class PpoOptions(CriticOptions, kw_only=True):
    """The critic, and what it does to the advantages."""

    value_clip: Positive | None = None
    """The farthest that an update may move V(s) and still lower the critic's loss; None:
    as far as it likes.
    """
    whiten: bool = True
    """Advantages are shifted and scaled over all rows of the training to mean 0 and
    standard deviation 1.
    """


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


class ProximalPolicy(PolicyGradient):
    """Learns from the credit ppo, whose part `return` is the critic's target."""

    name = "ppo"
    options = PpoOptions
    metrics = PpoMetrics
    trainer = "agentcli.training.ppo.train:train_ppo"
    # The critic reads whole prompts, a row each, and is a second model.
    packs = False
    shards = False
    credit_maker = "agentcli assign-credit --method ppo"
