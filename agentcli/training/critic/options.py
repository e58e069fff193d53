"""The options of objectives that train a critic together with the policy."""

from typing import Literal

from agentcli.records.section import Positive, Section

Head = Literal["linear", "mlp"]
"""linear: one weight per feature. mlp: with a hidden layer of the model's width
(Rare-tool).
"""


class CriticOptions(Section, kw_only=True):
    """How the critic is created and trained."""

    critic: str | None = None
    """Directory of a critic to continue training, or of a model to make one from. None:
    the critic next to the starting checkpoint, or if there is none, a new critic made
    from the model that training starts from.
    """
    head: Head = "linear"
    """The value head of a new critic: linear or mlp. It outputs 0 at first."""
    critic_learning_rate: Positive | None = None
    """The critic's learning rate. None: train.learning_rate."""


RETURN = "return"
"""The part of a credit that a critic is trained on."""
