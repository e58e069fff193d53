"""The kinds of records that files hold.

Each kind has a name, a type, a place in a run directory, and a JSON Schema. The stages
read files with the same types, so the schemas always match what is accepted.
validate.py checks the contents of a given file.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.json import schema_components

from agentcli.errors import UsageError
from agentcli.evaluation.compare import RunComparison
from agentcli.evaluation.record import EvaluationSummary, LoopMetrics
from agentcli.exploration.registry import method_names
from agentcli.exploration.settings import evaluation_class, rollout_class
from agentcli.records import types
from agentcli.records.chats import Conversation, Preference, PromptCompletion
from agentcli.records.docs import describe, field_docs
from agentcli.records.grouping import grouped
from agentcli.records.settings import EvaluationSettings, RolloutSettings, Settings
from agentcli.records.study import StudyResults
from agentcli.registry import nearest
from agentcli.training.metrics import SftMetrics
from agentcli.training.objectives import OBJECTIVES, make_objective, objective_names


class RecordKind(NamedTuple):
    """A kind of record."""

    name: str
    """Its name on the command line."""
    type: type[Any]
    place: str | None = None
    """Pattern of the files that hold it in a run directory.

    None: it is part of another record, or lies anywhere.
    """


METRICS_PLACE = "metrics.jsonl"


WORD = re.compile("[A-Z][a-z]*")


def _metrics() -> dict[str, type[Any]]:
    """The types that a line of metrics.jsonl may have: TrainMetrics is train-metrics."""
    installed = [name for name in objective_names() if name not in OBJECTIVES]
    kinds: list[type[Any]] = []
    for objective in (*OBJECTIVES, *installed):
        kinds.append(make_objective(objective).metrics)
    kinds += [SftMetrics, LoopMetrics]
    names = ["-".join(WORD.findall(one.__name__)).lower() for one in kinds]
    return dict(zip(names, kinds, strict=True))


METRICS = _metrics()
"""The types that a line of metrics.jsonl may have. Their fields tell them apart."""
KINDS = (
    RecordKind("task", types.Task),
    RecordKind("step", types.Step),
    RecordKind("move", types.Move),
    RecordKind("ledger", types.Ledger),
    RecordKind("tree", types.Tree, "trees.jsonl"),
    RecordKind("tree-seconds", types.TreeSeconds, "seconds.jsonl"),
    RecordKind("step-credit", types.StepCredit),
    RecordKind("credit", types.Credit, "credit/*.jsonl"),
    RecordKind("graph-size", types.GraphSize),
    RecordKind("episode", types.Episode, "evaluation/*.jsonl"),
    RecordKind("evaluation", EvaluationSummary, "evaluation/*.json"),
    RecordKind("comparison", RunComparison),
    RecordKind("study", StudyResults, "study.json"),
    RecordKind("prompt-completion", PromptCompletion, "export/messages.jsonl"),
    RecordKind("conversation", Conversation, "export/conversations.jsonl"),
    RecordKind("preference", Preference, "export/preferences.jsonl"),
    RecordKind("panel", types.Panel),
    RecordKind("stage-record", types.StageRecord),
    RecordKind("manifest", types.Manifest, "manifest.json"),
    RecordKind("settings", Settings),
    *[RecordKind(name, kind, METRICS_PLACE) for name, kind in METRICS.items()],
)
"""All kinds of records."""
FOLDERS = ("credit", "evaluation")
"""Folders of a run directory whose files have names of their own."""
YAML = (".yaml", ".yml")
Schema = dict[str, Any]


def kind_names() -> list[str]:
    """The names of all kinds."""
    return [kind.name for kind in KINDS]


def type_of(name: str) -> type[Any]:
    """The type of a kind of record. Raises UsageError with the nearest name."""
    for kind in KINDS:
        if kind.name == name:
            return kind.type
    raise UsageError(f"no schema {name!r}; {nearest(name, kind_names())}")


def json_schema(name: str) -> Schema:
    """The JSON Schema of a kind of record. Raises UsageError with the nearest name."""
    kind = type_of(name)
    if kind is Settings:
        return settings_schema()
    schema = msgspec.json.schema(kind)
    describe(schema["$defs"], [kind])
    return schema


def kind_of(path: Path, kind: str | None = None) -> str:
    """The kind of records in a file: `kind`, else the one of its name and folder.

    "metrics" is any of METRICS. Raises UsageError where nothing names a kind, and where
    `kind` is unknown or cannot be in such a file.
    """
    if kind is not None:
        type_of(kind)
        if (kind == "settings") != (path.suffix in YAML):
            raise UsageError(
                f"{path}: --kind {kind}: settings are .yaml files, records .jsonl or "
                ".json"
            )
        return kind
    if path.suffix in YAML:
        return "settings"
    plain = path.absolute()
    for record in KINDS:
        if record.place is not None and plain.match(record.place):
            return "metrics" if record.place == METRICS_PLACE else record.name
    # A panel may have any name, but not among files of another kind.
    if path.suffix == ".json" and plain.parent.name not in FOLDERS:
        return "panel"
    raise UsageError(
        f"{path}: its name does not say what it holds; name it with --kind, one of "
        f"{', '.join(kind_names())}"
    )


def metrics_type(first: dict[str, Any]) -> type[Any]:
    """The metrics type that shares most fields with a file's first line."""
    return max(
        METRICS.values(),
        key=lambda kind: len(first.keys() & set(kind.__struct_fields__)),
    )


def settings_schema() -> Schema:
    """The JSON Schema of settings, as `decode` of exploration/settings.py reads them.

    `rollout` is any of the methods' classes; its `method` says which. `evaluation`
    lists the settings of all methods that evaluations sample with. Imports all methods.
    """
    methods = grouped((rollout_class(name), name) for name in method_names())
    (schema, *rollouts), definitions = schema_components([Settings, *methods])
    for names, rollout in zip(methods.values(), rollouts, strict=True):
        _say_method(_definition(definitions, rollout), names)
    sections = definitions[Settings.__name__]["properties"]
    sections["rollout"] = {"anyOf": list(rollouts)}
    evaluation = definitions[EvaluationSettings.__name__]["properties"]
    for name in method_names():
        (reference,), more = schema_components([evaluation_class(name)])
        properties = _definition(more, reference)["properties"]
        # The first method that has a setting describes it.
        for setting, description in properties.items():
            evaluation.setdefault(setting, description)
        for section, description in more.items():
            definitions.setdefault(section, description)
    describe(definitions, (Settings, *methods))
    for kind in methods:
        docs = field_docs(kind)
        for name in docs.keys() & evaluation.keys():
            evaluation[name].setdefault("description", docs[name])
    return {**schema, "$defs": definitions}


def _say_method(definition: Schema, names: list[str]) -> None:
    """Lets the settings of a class name one of its methods."""
    default = RolloutSettings().method
    method: Schema = {"enum": names}
    definition["properties"]["method"] = method
    if default in names:
        method["default"] = default
    else:
        # Without it the settings would be of the default method's class.
        definition["required"] = [*definition["required"], "method"]


def _definition(definitions: dict[str, Schema], reference: Schema) -> Schema:
    """The definition that a {"$ref": ...} refers to."""
    name = reference["$ref"].rpartition("/")[2]
    return definitions[name]
