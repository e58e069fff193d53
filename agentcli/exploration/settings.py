"""The settings of exploration methods; each method defines its own class.

The class is the annotation of `settings` in `explore`: RolloutSettings or a subclass.
Its fields become the settings `rollout.NAME`. Evaluations sample with the method named
by `alone`, or vote (test-time-branch), so the fields of these two methods are also
`evaluation.NAME`. A new field needs no other change. A field of type PolicySettings (or
None) is a further model: the stages open it, and `explore` asks it with
`actor.ask(NAME, node, message)`.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import FieldInfo

from agentcli.errors import UsageError
from agentcli.exploration.registry import REGISTRY, make, method_names
from agentcli.records.section import Section
from agentcli.records.settings import EvaluationSettings, RolloutSettings, Settings

VOTING = "test-time-branch"

SectionT = TypeVar("SectionT", bound=Section)
FieldDefinition = tuple[str, Any, Any]
"""Name, type and default."""


@cache
def rollout_class(method: str) -> type[RolloutSettings]:
    """The settings class of a method.

    Raises UsageError with the nearest name for an unknown method, and for a function
    without such a class.
    """
    kind = REGISTRY.settings_class(make(method))
    if not (isinstance(kind, type) and issubclass(kind, RolloutSettings)):
        raise UsageError(
            f"rollout.method: {method}: its settings are of {kind}; annotate "
            "them with RolloutSettings or a subclass"
        )
    return kind


@cache
def evaluation_class(method: str) -> type[EvaluationSettings]:
    """EvaluationSettings plus the fields of the methods that evaluations sample with.

    These are test-time-branch and the method's `alone`. The fields of `alone` default
    to None, which means the value in `rollout`.
    """
    fields: list[FieldDefinition] = []
    for field in added_fields(VOTING):
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = msgspec.field(default_factory=field.default_factory)
        fields.append((field.name, field.type, default))
    for field in added_fields(rollout_class(method).alone):
        fields.append((field.name, field.type | None, None))
    return _extended(EvaluationSettings, fields)


@cache
def settings_class(method: str) -> type[Settings]:
    """Settings whose rollout and evaluation sections have the fields of `method`."""
    evaluation = evaluation_class(method)
    sections: list[FieldDefinition] = [
        (
            "rollout",
            rollout_class(method),
            msgspec.field(default_factory=partial(rollout_settings, method)),
        ),
        (
            "evaluation",
            evaluation,
            msgspec.field(default_factory=evaluation),
        ),
    ]
    return _extended(Settings, sections)


def decode(values: Mapping[str, Any]) -> Settings:
    """Settings from plain values, such as recorded or merged ones.

    Raises UsageError for an unknown method, msgspec.ValidationError for a wrong value.
    """
    return msgspec.convert(values, settings_class(method_of(values)))


def changed_settings(settings: Settings) -> dict[str, Any]:
    """The method, and the settings that differ from its defaults, as plain values."""
    defaults = msgspec.to_builtins(settings_class(settings.rollout.method)())
    defaults["rollout"]["method"] = RolloutSettings().method
    return _differences(msgspec.to_builtins(settings), defaults)


def _differences(
    values: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    changes = {}
    for name, value in values.items():
        default = defaults.get(name)
        if value == default:
            continue
        if isinstance(value, dict) and isinstance(default, dict):
            value = _differences(value, default)
        changes[name] = value
    return changes


def method_of(values: Mapping[str, Any], otherwise: str = "chain") -> str:
    """The rollout method named in plain settings values, or `otherwise`."""
    rollout = values.get("rollout")
    method = rollout.get("method") if isinstance(rollout, Mapping) else None
    return method if isinstance(method, str) else otherwise


def rollout_settings(method: str = "chain", **values: Any) -> RolloutSettings:
    """The settings of a method, as an instance of its own class.

    Raises UsageError for an unknown method.
    """
    return rollout_class(method)(method=method, **values)


def added_fields(method: str) -> list[FieldInfo]:
    """The fields that a method adds to those that every method has."""
    fields = msgspec.structs.fields(rollout_class(method))
    shared = RolloutSettings.__struct_fields__
    return [field for field in fields if field.name not in shared]


def methods_with(name: str) -> list[str]:
    """The methods that have a setting of their own called `name`."""
    return [method for method in method_names() if name in _added_names(method)]


def names_of_methods() -> list[str]:
    """The names of all settings that belong to particular methods, sorted."""
    names: set[str] = set()
    for method in method_names():
        names |= _added_names(method)
    return sorted(names)


def as_method(rollout: RolloutSettings, method: str, **changes: Any) -> RolloutSettings:
    """The settings of another method, with the values of the fields both have.

    `changes` override them; a change to None is ignored.
    """
    kind = rollout_class(method)
    values = {}
    for name in kind.__struct_fields__:
        if hasattr(rollout, name):
            values[name] = getattr(rollout, name)
    for name, value in changes.items():
        if value is not None:
            values[name] = value
    values["method"] = method
    return kind(**values)


def _added_names(method: str) -> set[str]:
    return {field.name for field in added_fields(method)}


def _extended(
    base: type[SectionT],
    fields: list[FieldDefinition],
) -> type[SectionT]:
    """`base` with further fields, under the same name."""
    extended = msgspec.defstruct(
        base.__name__,
        fields,
        bases=(base,),
        module=__name__,
        kw_only=True,
    )
    return cast(type[SectionT], extended)
