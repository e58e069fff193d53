"""The JSON Schema of settings, with what every exploration method adds to them.

`rollout` is any of the methods' classes; its `method` says which. `evaluation` lists
the settings of all methods that evaluations sample with.
"""

from typing import Any

import msgspec

from agentcli.exploration.registry import method_names
from agentcli.exploration.settings import evaluation_class, rollout_class
from agentcli.records.settings import EvaluationSettings, RolloutSettings, Settings

REFERENCE = "#/$defs/{name}"


def settings_schema() -> dict[str, Any]:
    """The JSON Schema of settings, as `decode` (agentcli/exploration/settings.py) reads
    them. Imports all methods.
    """
    methods = _methods_by_class()
    (schema, *rollouts), definitions = msgspec.json.schema_components(
        [Settings, *methods], ref_template=REFERENCE
    )
    for names, rollout in zip(methods.values(), rollouts, strict=True):
        _say_method(_definition(definitions, rollout), names)
    definitions[Settings.__name__]["properties"]["rollout"] = {"anyOf": list(rollouts)}
    evaluation = definitions[EvaluationSettings.__name__]["properties"]
    for name in method_names():
        (one,), more = msgspec.json.schema_components(
            [evaluation_class(name)], ref_template=REFERENCE
        )
        for setting, value in _definition(more, one)["properties"].items():
            evaluation.setdefault(setting, value)
        for section, value in more.items():
            definitions.setdefault(section, value)
    return {**schema, "$defs": definitions}


def _methods_by_class() -> dict[type[RolloutSettings], list[str]]:
    """The methods that have each class of settings."""
    methods: dict[type[RolloutSettings], list[str]] = {}
    for name in method_names():
        methods.setdefault(rollout_class(name), []).append(name)
    return methods


def _say_method(definition: dict[str, Any], names: list[str]) -> None:
    """Let the settings of a class name one of its methods: they must, where the default
    is none of these.
    """
    default = RolloutSettings().method
    if default in names:
        definition["properties"]["method"] = {"enum": names, "default": default}
    else:
        definition["properties"]["method"] = {"enum": names}
        definition["required"] = [*definition["required"], "method"]


def _definition(
    definitions: dict[str, Any], reference: dict[str, Any]
) -> dict[str, Any]:
    """What a {"$ref": ...} refers to."""
    definition: dict[str, Any] = definitions[reference["$ref"].rpartition("/")[2]]
    return definition
