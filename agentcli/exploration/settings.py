"""The settings of exploration methods, each typed by the class that stands beside its
method.

The class is what `explore`'s `settings` are annotated with: RolloutSettings or a
subclass. Its fields are `rollout.NAME`. Evaluations sample with the method's `alone`,
or vote (test-time-branch): the fields of these two are `evaluation.NAME` as well. So a
new field needs no second line anywhere. A field of the type PolicySettings (or None) is
a further model, which the stages open and `explore` asks with `actor.ask(NAME, node,
message)`.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, cast, get_type_hints

import msgspec
from msgspec.structs import FieldInfo

from agentcli.exploration.registry import REGISTRY, method_names
from agentcli.records.settings import EvaluationSettings, RolloutSettings, Settings

VOTING = "test-time-branch"


@cache
def rollout_class(method: str) -> type[RolloutSettings]:
    """The class of a method's settings. Raises UsageError with the nearest name for an
    unknown method.
    """
    kind: type[RolloutSettings] = get_type_hints(REGISTRY.load(method).explore)[
        "settings"
    ]
    return kind


@cache
def evaluation_class(method: str) -> type[EvaluationSettings]:
    """EvaluationSettings with the settings of the methods that evaluate a policy of
    `method`.

    A setting that `rollout` has too is None until it is set: then rollout's value
    holds.
    """
    added: list[tuple[str, Any, Any]] = []
    for field in own_fields(VOTING):
        added.append((field.name, field.type, _default(field)))
    for field in own_fields(rollout_class(method).alone):
        added.append((field.name, field.type | None, None))
    kind = msgspec.defstruct(
        "EvaluationSettings",
        added,
        bases=(EvaluationSettings,),
        module=__name__,
        kw_only=True,
    )
    return cast(type[EvaluationSettings], kind)


@cache
def settings_class(method: str) -> type[Settings]:
    """Settings, with the sections that depend on the method typed as `method` wants
    them.
    """
    evaluation = evaluation_class(method)
    sections: list[tuple[str, Any, Any]] = [
        (
            "rollout",
            rollout_class(method),
            msgspec.field(default_factory=partial(rollout_settings, method)),
        ),
        ("evaluation", evaluation, msgspec.field(default_factory=evaluation)),
    ]
    kind = msgspec.defstruct(
        "Settings", sections, bases=(Settings,), module=__name__, kw_only=True
    )
    return cast(type[Settings], kind)


def decode(values: Mapping[str, Any]) -> Settings:
    """Settings from plain values, as they are recorded or merged.

    Raises UsageError for an unknown method, msgspec.ValidationError for a wrong value.
    """
    return msgspec.convert(values, settings_class(method_of(values)))


def method_of(values: Mapping[str, Any], otherwise: str = "chain") -> str:
    """The method that plain values of settings name."""
    rollout = values.get("rollout")
    method = rollout.get("method") if isinstance(rollout, Mapping) else None
    return method if isinstance(method, str) else otherwise


def rollout_settings(method: str = "chain", **values: Any) -> RolloutSettings:
    """The settings of a method, of its own class. Raises UsageError for an unknown
    method.
    """
    return rollout_class(method)(method=method, **values)


def own_fields(method: str) -> list[FieldInfo]:
    """The fields that a method adds to those of every method."""
    shared = RolloutSettings.__struct_fields__
    return [
        field
        for field in msgspec.structs.fields(rollout_class(method))
        if field.name not in shared
    ]


def methods_with(name: str) -> list[str]:
    """The methods that have a setting of their own called `name`."""
    return [
        method
        for method in method_names()
        if any(field.name == name for field in own_fields(method))
    ]


def names_of_methods() -> list[str]:
    """The settings that some method has of its own, sorted."""
    return sorted(
        {field.name for method in method_names() for field in own_fields(method)}
    )


def as_method(rollout: RolloutSettings, method: str, **changes: Any) -> RolloutSettings:
    """The same settings for another method: what both have stays, and `changes` are
    made.

    A change to None is none.
    """
    names = rollout_class(method).__struct_fields__
    values = {
        name: getattr(rollout, name)
        for name in rollout.__struct_fields__
        if name in names
    }
    values |= {name: value for name, value in changes.items() if value is not None}
    return rollout_settings(**{**values, "method": method})


def _default(field: FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return field.default
