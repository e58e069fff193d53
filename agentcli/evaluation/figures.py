"""The figures that show a rollout or an evaluation over the course of a training.

A loop writes them to its metrics.jsonl, and trackers get them: rollout/success,
rollout/success/KIND, eval/success, ... They are the Results of a summary under the
names that users of trackers know.
"""

from agentcli.evaluation.record import Results, ResultsByKind
from agentcli.records.faults import printable
from agentcli.records.types import SCHEMA_VERSION, Count, Record


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
    """The results by name, of all kinds together and of each."""
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
