"""The objective `ppo`: the policy gradient with a critic that learns the returns."""

from agentcli.records.section import Positive
from agentcli.training.critic.options import CriticOptions
from agentcli.training.policy_gradient.objective import PolicyFigures, PolicyGradient


class PpoOptions(CriticOptions, kw_only=True):
    """Options of the critic, and of how advantages are scaled."""

    value_clip: Positive | None = None
    """Clip range of V(s) around its value before training, in the critic's loss. None:
    no clipping.
    """
    whiten: bool = True
    """Normalise the advantages over all rows of the training to mean 0 and standard
    deviation 1.
    """


class PpoMetrics(PolicyFigures, kw_only=True):
    """One update of policy and critic."""

    value_loss: float
    """Mean of (V - R)^2 over the rows, before the update; the clipped loss if
    value_clip is set.
    """
    explained_variance: float
    """1 - Var(R - V) / Var(R) over the rows of the update, before it; 0 if all R are
    equal.
    """
    return_mean: float
    critic_grad_norm: float
    """Gradient norm of the critic before clipping; grad_norm is the policy's."""
    seconds: float
    """Training time so far; time that a killed training spent after its last snapshot
    is not included.
    """


class ProximalPolicy(PolicyGradient):
    """Learns from the credit ppo; its part `return` is the critic's target."""

    name = "ppo"
    options = PpoOptions
    metrics = PpoMetrics
    trainer = "agentcli.training.ppo.train:train_ppo"
    # The critic reads whole prompts, one per row, and is a second model.
    packs = False
    shards = False
    credit_maker = "agentcli assign-credit --method ppo"
