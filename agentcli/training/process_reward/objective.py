"""The objective `process-reward`: trains a model that scores steps, from credit."""

from agentcli.records.section import Section
from agentcli.training.critic.options import Head
from agentcli.training.loop.metrics import MetricsLine
from agentcli.training.objectives import OF_SURROGATE, Objective


class ProcessRewardOptions(Section, kw_only=True):
    """Options for the target and the head."""

    target: str = "reward"
    """The part of the credit that is learned. reward (of grpo and others) is the
    success rate below the step, a Monte Carlo estimate of its value.
    """
    head: Head = "linear"
    """The head of a new model: linear or mlp. It outputs 0 at first."""


class ProcessRewardMetrics(MetricsLine, kw_only=True):
    """One update of a process reward model."""

    epoch: int
    loss: float
    """Mean of (score - target)^2 over the rows, before the update."""
    explained_variance: float
    """1 - Var(target - score) / Var(target) over the rows of the update, before it."""
    target_mean: float
    grad_norm: float
    """Gradient norm before clipping."""
    learning_rate: float
    seconds: float
    """Training time so far; time that a killed training spent after its last snapshot
    is not included.
    """


class ProcessReward(Objective):
    """Learns one part of the credit, read at the end of a step's response."""

    name = "process-reward"
    options = ProcessRewardOptions
    metrics = ProcessRewardMetrics
    trainer = "agentcli.training.process_reward.train:train_process_reward"
    takes_ratios = False
    reads_tokens = False
    trains_policy = False
    unread = (
        *("update", "beta", "clip", "reference", "aggregate"),
        *("recompute_logprobs", "carry_optimizer"),
        *OF_SURROGATE,
    )
