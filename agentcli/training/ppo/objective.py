"""The objective `ppo`: the policy gradient, and a critic that learns the returns."""

from agentcli.records.section import Positive
from agentcli.training.critic.options import CriticOptions
from agentcli.training.policy_gradient.objective import PolicyGradient
from agentcli.training.ppo.metrics import PpoMetrics


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
