"""What a file must hold: the type of its records by name, that type as JSON Schema, and which of them a file's place says.

The types are those that the stages themselves read with, so that the answers cannot drift from what is accepted. Whether a
given file holds what it must: validate.py.
"""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import UsageError
from agentcli.evaluation.record import EvaluationSummary
from agentcli.records.settings import Settings
from agentcli.records.types import (
    Credit,
    Episode,
    GraphSize,
    Ledger,
    Manifest,
    Move,
    Panel,
    StageRecord,
    Step,
    StepCredit,
    Task,
    Tree,
    TreeSeconds,
)
from agentcli.training.imitation.metrics import SftMetrics
from agentcli.training.policy_gradient.metrics import TrainMetrics
from agentcli.training.preference.metrics import DpoMetrics

METRICS: dict[str, type[Any]] = {
    "train-metrics": TrainMetrics,
    "sft-metrics": SftMetrics,
    "dpo-metrics": DpoMetrics,
}
"""What a line of metrics.jsonl may be. `metrics_type` tells them apart by their fields."""
FILES = {"trees": "tree", "seconds": "tree-seconds", "metrics": "metrics"}
"""What the .jsonl files of a run hold."""
FOLDERS = {"credit": "credit", "evaluation": "episode"}
"""What the .jsonl files of a run's folders hold."""
LINES, YAML = (".jsonl", ".jsonl.zst"), (".yaml", ".yml")


def schemas() -> dict[str, type[Any]]:
    """The types that files are made of, by the name they have on the command line."""
    return {
        "task": Task,
        "step": Step,
        "move": Move,
        "ledger": Ledger,
        "tree": Tree,
        "tree-seconds": TreeSeconds,
        "step-credit": StepCredit,
        "credit": Credit,
        "graph-size": GraphSize,
        "episode": Episode,
        "evaluation": EvaluationSummary,
        "panel": Panel,
        "stage-record": StageRecord,
        "manifest": Manifest,
        **METRICS,
        "settings": Settings,
    }


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of one type. Raises UsageError with the nearest name."""
    return msgspec.json.schema(type_of(name))


def kind_of(path: Path, kind: str | None = None) -> str:
    """The name in `schemas` of what a file holds: `kind`, else by its name and folder; "metrics" is any of METRICS.

    Raises UsageError where nothing says so, or `kind` is unknown or cannot be in such a file.
    """
    stem, suffix = path.name.partition(".")[0], _suffix(path)
    if kind is not None:
        type_of(kind)
        if (kind == "settings") != (suffix in YAML):
            raise UsageError(f"{path}: --kind {kind}: settings are .yaml files, records .jsonl, .jsonl.zst or .json")
        return kind
    if suffix in YAML:
        return "settings"
    if suffix == ".json" and path.absolute().parent.name == "evaluation":
        return "evaluation"
    if suffix == ".json" and path.absolute().parent.name not in FOLDERS:
        return "manifest" if stem == "manifest" else "panel"
    if suffix in LINES:
        found = FILES.get(stem) or FOLDERS.get(path.absolute().parent.name)
        if found:
            return found
    raise UsageError(f"{path}: its name does not say what it holds; name it with --kind, one of {', '.join(schemas())}")


def metrics_type(first: dict[str, Any]) -> type[Any]:
    """The metrics type that shares most fields with a file's first line."""
    return max(METRICS.values(), key=lambda kind: len(first.keys() & set(kind.__struct_fields__)))


def type_of(name: str) -> type[Any]:
    """The type that `name` stands for. Raises UsageError with the nearest name."""
    found = schemas()
    if name not in found:
        raise UsageError(f"no schema {name!r}; {hint(name, found)}")
    return found[name]


def hint(name: str, names: Iterable[str]) -> str:
    """The nearest name, or all of them."""
    near = difflib.get_close_matches(name, list(names), 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"


def _suffix(path: Path) -> str:
    return "".join(path.suffixes[-2:]) if path.suffix == ".zst" else path.suffix
