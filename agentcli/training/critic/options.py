"""The options of an objective that trains a critic beside the policy."""

from typing import Literal

from agentcli.records.section import Positive, Section

Head = Literal["linear", "mlp"]
"""linear: one weight per feature. mlp: a hidden layer of the model's width (001)."""


class CriticOptions(Section, kw_only=True):
    """How the critic is made and trained."""

    critic: str | None = None
    """Directory of a critic to go on with, or a model to make one from. None: the critic
    that lies beside the starting checkpoint; where there is none, one is made from the
    model that training starts from.
    """
    head: Head = "linear"
    """The value head of a critic that is made anew: linear or mlp. At first it says 0."""
    critic_learning_rate: Positive | None = None
    """None: train.learning_rate."""


RETURN = "return"
"""The part of a credit that a critic learns."""
