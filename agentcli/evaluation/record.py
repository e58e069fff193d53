"""The results of an evaluation, as they are computed, written and read again.

`EvaluationSummary` is an evaluation/<label>.json, as `eval`, `pass-at-k` and
`test-time-branch` write it. Like every record it refuses unknown fields. summary.py
says how the numbers come about.
"""

from typing import Any, Literal

import msgspec

from agentcli.records.shards import ShardExtent
from agentcli.records.types import SCHEMA_VERSION, Count, Ledger, Outcome, Record


class Rate(Record, kw_only=True):
    """A share with its 95 % interval."""

    rate: float
    low: float
    high: float


def rated(rate: float, interval: tuple[float, float]) -> Rate:
    """A share with the two ends of its interval."""
    low, high = interval
    return Rate(rate=rate, low=low, high=high)


class SuccessRate(Rate, kw_only=True):
    """The share of success, and how its interval was computed."""

    interval: Literal["wilson", "bootstrap"]


class WalkedPanel(Record, kw_only=True):
    """The panel, or the part of it that was played before a budget ended."""

    name: str
    tasks: Count
    sha256: str


class BudgetSpent(Record, kw_only=True):
    """The budget of an evaluation, and how much of it was spent on how many trees."""

    unit: str
    limit: Count
    spent: Count
    trees: Count


class Results(Record, kw_only=True):
    """The metrics of some episodes.

    `steps`, `moves` and `tokens` are means over episodes. `repetitive` and
    `inadmissible` are shares of the moves, `explore` and `malformed` shares of the
    steps.
    """

    episodes: Count
    tasks: Count
    outcomes: dict[Outcome, Count]
    success: SuccessRate
    score: float
    steps: float
    moves: float
    tokens: float
    repetitive: float
    explore: float
    malformed: float
    inadmissible: float


class ResultsByKind(Results, kw_only=True):
    """The metrics of all episodes, and of each task kind by itself."""

    kinds: dict[str, Results]


class EvaluationSummary(ResultsByKind, kw_only=True):
    """The whole file. `pass_at_k` is keyed by k."""

    schema_version: int = SCHEMA_VERSION
    stage: str
    split: str
    label: str
    model: str | None
    policy: str
    seed: int
    samples: Count
    temperature: float
    panel: WalkedPanel
    pass_at_k: dict[str, Rate] | None = None
    ledger: Ledger
    budget: BudgetSpent | None = None
    shard: ShardExtent | None = None

    def values(self) -> dict[str, Any]:
        """The plain values in the file's order: what was evaluated, then the results.

        What only some evaluations have is left out where there is none.
        """
        values: dict[str, Any] = msgspec.to_builtins(self)
        results = ResultsByKind.__struct_fields__
        for name in (*results, "pass_at_k", "ledger", "budget", "shard"):
            value = values.pop(name)
            if value is not None or name in results:
                values[name] = value
        return values
