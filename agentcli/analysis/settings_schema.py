"""The JSON Schema of settings, with those of every exploration method.

`rollout` is any of the methods' classes; its `method` says which. `evaluation` lists
the settings of all methods that evaluations sample with.
"""

from typing import Any

import msgspec

from agentcli.exploration.registry import method_names
from agentcli.exploration.settings import evaluation_class, rollout_class
from agentcli.records.docs import describe, field_docs
from agentcli.records.settings import EvaluationSettings, RolloutSettings, Settings

REFERENCE = "#/$defs/{name}"
Schema = dict[str, Any]


def settings_schema() -> Schema:
    """The JSON Schema of settings, as `decode` of exploration/settings.py reads them.

    Imports all methods.
    """
    methods = _methods_by_class()
    (schema, *rollouts), definitions = _components(Settings, *methods)
    for names, rollout in zip(methods.values(), rollouts, strict=True):
        _say_method(_definition(definitions, rollout), names)
    sections = definitions[Settings.__name__]["properties"]
    sections["rollout"] = {"anyOf": list(rollouts)}
    evaluation = definitions[EvaluationSettings.__name__]["properties"]
    for name in method_names():
        (reference,), more = _components(evaluation_class(name))
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


def _components(*classes: type[Any]) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    """References to the schemas of the classes, and all definitions."""
    return msgspec.json.schema_components(classes, ref_template=REFERENCE)


def _methods_by_class() -> dict[type[RolloutSettings], list[str]]:
    """The methods that have each class of settings."""
    methods: dict[type[RolloutSettings], list[str]] = {}
    for name in method_names():
        methods.setdefault(rollout_class(name), []).append(name)
    return methods


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
