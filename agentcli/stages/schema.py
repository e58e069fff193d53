"""What a file must hold, said as JSON Schema, and whether a given file holds it.

Both answers come from the types that the stages themselves read with, so they cannot drift from what is accepted. A file
is checked by itself: that credit belongs to its trees, or that a world offers a panel's tasks, the stages check.
"""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import DataError, UsageError
from agentcli.records.files import read_json, read_records
from agentcli.records.settings import Settings
from agentcli.records.trees import validate_tree
from agentcli.records.types import (
    Credit,
    Episode,
    Ledger,
    Manifest,
    Panel,
    StageRecord,
    Step,
    StepCredit,
    Task,
    Tree,
)
from agentcli.training.metrics import SftMetrics, TrainMetrics

METRICS: dict[str, type[Any]] = {"train-metrics": TrainMetrics, "sft-metrics": SftMetrics}
FOLDERS = {"credit": "credit", "evaluation": "episode"}
"""What the .jsonl files of a run's folders hold."""
LINES, YAML = (".jsonl", ".jsonl.zst"), (".yaml", ".yml")


def schemas() -> dict[str, type[Any]]:
    """The types that files are made of, by the name they have on the command line."""
    return {
        "task": Task,
        "step": Step,
        "ledger": Ledger,
        "tree": Tree,
        "step-credit": StepCredit,
        "credit": Credit,
        "episode": Episode,
        "panel": Panel,
        "stage-record": StageRecord,
        "manifest": Manifest,
        **METRICS,
        "settings": Settings,
    }


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of one type. Raises UsageError with the nearest name."""
    return msgspec.json.schema(_type(name))


def kind_of(path: Path, kind: str | None = None) -> str:
    """The name in `schemas` of what a file holds: `kind`, else by its name and folder; "metrics" is either of the two
    metrics types. Raises UsageError where nothing says so, or `kind` is unknown or cannot be in such a file."""
    stem, suffix = path.name.partition(".")[0], _suffix(path)
    if kind is not None:
        _type(kind)
        if (kind == "settings") != (suffix in YAML):
            raise UsageError(f"{path}: --kind {kind}: settings are .yaml files, records .jsonl, .jsonl.zst or .json")
        return kind
    if suffix in YAML:
        return "settings"
    if suffix == ".json" and path.absolute().parent.name not in FOLDERS:
        return "manifest" if stem == "manifest" else "panel"
    if suffix in LINES:
        found = {"trees": "tree", "metrics": "metrics"}.get(stem) or FOLDERS.get(path.absolute().parent.name)
        if found:
            return found
    raise UsageError(f"{path}: its name does not say what it holds; name it with --kind, one of {', '.join(schemas())}")


def validate(path: Path, kind: str | None = None) -> int:
    """Read a whole file, streaming; returns its number of records.

    Raises DataError "file:line: field: what is wrong" for the first fault, and for a file without a record; UsageError
    as `kind_of` does.
    """
    kind = kind_of(path, kind)
    if kind == "settings":
        return _validate_settings(path)
    if _suffix(path) == ".json":
        _validate_json(path, kind)
        return 1
    count = 0
    for count, record in enumerate(read_records(path, _metrics(path) if kind == "metrics" else _type(kind)), 1):
        if isinstance(record, Tree):
            validate_tree(record, f"{path}:{count}")
    if count == 0:
        raise DataError(f"{path}: holds no complete record; write it again")
    return count


def _validate_settings(path: Path) -> int:
    from agentcli.credit.registry import make
    from agentcli.stages.layers import resolve

    try:
        settings = resolve(None, [path], {}, [], {})
    except UsageError as error:
        raise DataError(str(error)) from error
    try:
        make(settings.credit)
    except UsageError as error:
        raise DataError(f"{path}: {error}") from error
    return 1


def _validate_json(path: Path, kind: str) -> None:
    from agentcli.stages.panels import read_panel

    record = read_json(path, _type(kind))
    if isinstance(record, Tree):
        validate_tree(record, str(path))
    if isinstance(record, Panel):
        read_panel(path, record.world)


def _metrics(path: Path) -> type[Any]:
    """The metrics type that shares most fields with the file's first line."""
    first: dict[str, Any] = next(read_records(path, dict), {})
    return max(METRICS.values(), key=lambda kind: len(first.keys() & set(kind.__struct_fields__)))


def _type(name: str) -> type[Any]:
    found = schemas()
    if name not in found:
        raise UsageError(f"no schema {name!r}; {_hint(name, found)}")
    return found[name]


def _hint(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"


def _suffix(path: Path) -> str:
    return "".join(path.suffixes[-2:]) if path.suffix == ".zst" else path.suffix
