"""The results of an evaluation, as they are computed, written and read again.

`EvaluationSummary` is an evaluation/<label>.json, as `eval`, `pass-at-k` and
`test-time-branch` write it. Like every record it refuses unknown fields. summary.py
says how the numbers come about.
"""

from typing import Any, Literal

import msgspec

from agentcli.records.faults import printable
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
    """The share of success, and how its interval was computed.

    bootstrap: tasks with their samples are drawn again; where all have the same share,
    wilson instead, of how many others may differ.
    """

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


class LoopMetrics(Record, kw_only=True):
    """One iteration of a loop: a line of its metrics.jsonl."""

    schema_version: int = SCHEMA_VERSION
    iteration: Count
    """0-based."""
    updates: Count
    """Updates that the optimiser had made when this iteration's trees were sampled."""
    figures: dict[str, float]
    """rollout/NAME and rollout/NAME/KIND of the trees. eval/... of the updated policy,
    where the loop evaluated it. NAME is success, score (mean reward), length (steps),
    tokens, repeated (share of moves) or malformed (share of responses).
    """


def figures(results: ResultsByKind, prefix: str) -> dict[str, float]:
    """The results under the names that users of trackers know, also of each kind.

    For instance rollout/success, rollout/success/KIND, eval/success.
    """
    named = _named(results, prefix, "")
    for kind, of_kind in results.kinds.items():
        named |= _named(of_kind, prefix, f"/{printable(kind)}")
    return named


def _named(results: Results, prefix: str, suffix: str) -> dict[str, float]:
    values = {
        "success": results.success.rate,
        "score": results.score,
        "length": results.steps,
        "tokens": results.tokens,
        "repeated": results.repetitive,
        "malformed": results.malformed,
    }
    return {f"{prefix}/{name}{suffix}": value for name, value in values.items()}
