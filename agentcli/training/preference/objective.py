"""The objective `dpo`: pairs of a success and a failure (ETO, Song et al. 2024)."""

from agentcli.records.section import Count, Positive, Section
from agentcli.training.objectives import Objective
from agentcli.training.preference.metrics import DpoMetrics


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
