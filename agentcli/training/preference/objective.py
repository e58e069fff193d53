"""The objective `dpo`: pairs of a success and a failure (ETO, Song et al. 2024)."""

from agentcli.records.section import Count, Positive, Section
from agentcli.training.loop.metrics import MetricsLine
from agentcli.training.objectives import Objective


class DpoOptions(Section, kw_only=True):
    """Which pairs are learned from, and how far the policy may move."""

    beta: Positive = 0.1
    """DPO's inverse temperature; train.beta is the policy gradient's."""
    pairs_per_task: Count = 8
    """Most (success, failure) pairs taken from one tree."""
    max_length: Count = 32768
    """Longest trajectory of a pair, prompts and responses of all its steps, in tokens;
    a longer pair is left out and counted.
    """


class DpoMetrics(MetricsLine, kw_only=True):
    """One update of dpo.

    Means are over the pairs of the update, before it was made.
    """

    epoch: int
    """0-based."""
    loss: float
    """-log sigmoid(margin); ln 2 where policy and reference are the same."""
    accuracy: float
    """Share of pairs with a margin above 0; 0 where policy and reference are the same.
    """
    margin: float
    """chosen_reward - rejected_reward."""
    chosen_reward: float
    """beta * (log pi - log ref) of the trajectory that succeeded, without the steps
    that both begin with.
    """
    rejected_reward: float
    """The same of the trajectory that did not."""
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    pairs: int
    tokens: int
    """Response tokens trained on, both sides."""
    seconds: float
    """Spent training so far, without what a killed training spent after its last
    snapshot.
    """


class DirectPreference(Objective):
    """Learns from outcomes alone, with the start of training as its reference."""

    name = "dpo"
    options = DpoOptions
    metrics = DpoMetrics
    trainer = "agentcli.training.preference.train:train_dpo"
    reads_credit = False
    takes_ratios = False
    unread = (
        "credit",
        "update",
        "clip",
        "beta",
        "aggregate",
        "rows_per_microbatch",
        "packing",
        "order",
        "recompute_logprobs",
    )
