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
from agentcli.records.section import Count, Section, value_at
from agentcli.records.settings import EvaluationSettings, RolloutSettings, Settings

VOTING = "test-time-branch"

SectionT = TypeVar("SectionT", bound=Section)


class RootedRollout(RolloutSettings, kw_only=True):
    """Settings of methods that fork their first trajectories."""

    roots: Count = 4
    """The number of trajectories that start from the initial state before any fork: M
    in spark, N0 in carl.
    """

    def check(self) -> None:
        """Raises UsageError when the first trajectories exceed the leaf budget."""
        if self.roots > self.leaves:
            raise UsageError(
                f"rollout.roots is {self.roots}, more than rollout.leaves "
                f"({self.leaves}); lower --roots"
            )


@cache
def rollout_class(method: str) -> type[RolloutSettings]:
    """The settings class of a method.

    Raises UsageError with the nearest name for an unknown method, for a function
    without such a class, and for a shared setting with another type.
    """
    kind = REGISTRY.settings_class(make(method))
    if not (isinstance(kind, type) and issubclass(kind, RolloutSettings)):
        raise UsageError(
            f"rollout.method: {method}: its settings are of {kind}; annotate "
            "them with RolloutSettings or a subclass"
        )
    shared = {
        field.name: field.type for field in msgspec.structs.fields(RolloutSettings)
    }
    for field in msgspec.structs.fields(kind):
        if field.type != shared.get(field.name, field.type):
            raise UsageError(
                f"rollout.method: {method}: its setting `{field.name}` has another type "
                f"than rollout.{field.name} of every method; rename it"
            )
    return kind


@cache
def evaluation_class(method: str) -> type[EvaluationSettings]:
    """EvaluationSettings plus the fields of the methods that evaluations sample with.

    These are test-time-branch and the method's `alone`. The fields of `alone` default
    to None, which means the value in `rollout`.
    """
    fields = [(field.name, field.type, field.default) for field in added_fields(VOTING)]
    for field in added_fields(rollout_class(method).alone):
        fields.append((field.name, field.type | None, None))
    return _extended(EvaluationSettings, fields)


@cache
def settings_class(method: str) -> type[Settings]:
    """Settings whose rollout and evaluation sections have the fields of `method`."""
    evaluation = evaluation_class(method)
    rollout = partial(rollout_settings, method)
    sections = [
        ("rollout", rollout_class(method), msgspec.field(default_factory=rollout)),
        ("evaluation", evaluation, msgspec.field(default_factory=evaluation)),
    ]
    return _extended(Settings, sections)


def decode(values: Mapping[str, Any]) -> Settings:
    """Settings from plain values, such as recorded or merged ones.

    Raises UsageError for an unknown method, msgspec.ValidationError for a wrong value.
    """
    return msgspec.convert(
        values, settings_class(named(values, "rollout.method") or "chain")
    )


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


def named(values: Any, path: str) -> str | None:
    """The text at a dotted path of plain settings values; None if there is none."""
    value = value_at(values, path)
    return value if isinstance(value, str) else None


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
    return [
        method
        for method in method_names()
        if name in {field.name for field in added_fields(method)}
    ]


def as_method(rollout: RolloutSettings, method: str, **changes: Any) -> RolloutSettings:
    """The settings of another method, with the values of the fields both have.

    `changes` override them.
    """
    kind = rollout_class(method)
    names = [name for name in kind.__struct_fields__ if hasattr(rollout, name)]
    values = {name: getattr(rollout, name) for name in names}
    return kind(**{**values, **changes, "method": method})


def _extended(
    base: type[SectionT], fields: list[tuple[str, Any, Any]]
) -> type[SectionT]:
    """`base` with further fields (name, type, default), under the same name."""
    extended = msgspec.defstruct(
        base.__name__, fields, bases=(base,), module=__name__, kw_only=True
    )
    return cast(type[SectionT], extended)
