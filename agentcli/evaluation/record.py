"""What an evaluation/<label>.json holds, as `eval`, `pass-at-k` and `test-time-branch` write it: the type that it is read with.

Like every record it refuses unknown fields. How the numbers come about: summary.py.
"""

from typing import Literal

from agentcli.records.types import SCHEMA_VERSION, Count, Ledger, Outcome, Record


class Rate(Record, kw_only=True):
    """A share with its 95 % interval."""

    rate: float
    low: float
    high: float


class SuccessRate(Rate, kw_only=True):
    """`interval`: how it was computed."""

    interval: Literal["wilson", "bootstrap"]


class Walked(Record, kw_only=True):
    """The panel, or that part of it that a budget paid for."""

    name: str
    tasks: Count
    sha256: str


class Spent(Record, kw_only=True):
    """What became of a budget."""

    unit: str
    limit: Count
    spent: Count
    trees: Count


class Results(Record, kw_only=True):
    """Of the episodes of one task kind, or of all (`summary.summarise`)."""

    episodes: Count
    tasks: Count
    outcomes: dict[Outcome, Count]
    success: SuccessRate
    score: float
    steps: float
    moves: float | None = None
    """None as for Episode.moves."""
    tokens: float
    repetitive: float
    explore: float
    malformed: float
    inadmissible: float


class EvaluationSummary(Results, kw_only=True):
    """The whole file. `kinds` by task kind, `pass_at_k` by k."""

    schema_version: int = SCHEMA_VERSION
    stage: str
    split: str
    label: str
    model: str | None
    policy: str
    seed: int
    samples: Count
    temperature: float
    panel: Walked
    kinds: dict[str, Results]
    ledger: Ledger
    pass_at_k: dict[str, Rate] | None = None
    budget: Spent | None = None
