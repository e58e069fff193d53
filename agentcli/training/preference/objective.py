"""The objective `dpo`: pairs of a success and a failure (ETO, Song et al. 2024)."""

from agentcli.records.section import Count, Positive, Section
from agentcli.training.loop.metrics import MetricsLine
from agentcli.training.objectives import OF_SURROGATE, Objective


class DpoOptions(Section, kw_only=True):
    """The choice of pairs, and how far the policy may move."""

    beta: Positive = 0.1
    """DPO's beta (inverse temperature), used instead of train.beta."""
    pairs_per_task: Count = 8
    """Most (success, failure) pairs taken from one tree."""
    max_length: Count = 32768
    """Longest trajectory of a pair in tokens, over prompts and responses of all its
    steps; longer pairs are left out and counted.
    """


class DpoMetrics(MetricsLine, kw_only=True):
    """One update of dpo.

    Means are over the pairs of the update, before it was made.
    """

    epoch: int
    """Number of the epoch, from 0."""
    loss: float
    """-log sigmoid(margin); ln 2 if policy and reference are the same."""
    accuracy: float
    """Share of pairs with a margin above 0; 0 if policy and reference are the same."""
    margin: float
    """chosen_reward - rejected_reward."""
    chosen_reward: float
    """beta * (log pi - log ref) of the successful trajectory, without the steps that
    both trajectories begin with.
    """
    rejected_reward: float
    """The same for the failed trajectory."""
    grad_norm: float
    """Gradient norm before clipping."""
    learning_rate: float
    pairs: int
    tokens: int
    """Response tokens trained on, both sides."""
    seconds: float
    """Training time so far; time that a killed training spent after its last snapshot
    is not included.
    """


class DirectPreference(Objective):
    """Learns only from outcomes; the initial model is the reference."""

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
        "tokens_per_microbatch",
        "packing",
        "order",
        "recompute_logprobs",
        *OF_SURROGATE,
    )
