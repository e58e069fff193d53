"""All credit methods by name, imported when asked for.

A method is a module with `assign(tree, settings) -> Credit`; the class its `settings`
is annotated with is the method's settings: exactly the switches that can matter for it.
What its name alone says stands in METHODS. `WITHOUT`, where a module has it, says of
switches that other methods have why this one does not. `EQUATIONS`, where it has them,
say how the parts of a row make its advantage, and `evidence(tree, settings, row) ->
Evidence` what they need besides (equations.py). An installed package adds such modules
under the entry-point group `agentcli.credit`.
"""

from collections.abc import Callable, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from agentcli.errors import UsageError
from agentcli.records.settings import Aggregate
from agentcli.records.types import Credit, Tree
from agentcli.registry import Registry, closest, nearest

if TYPE_CHECKING:
    from agentcli.credit.equations import Equation, Evidence


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a method before it is imported."""

    module: str
    aggregate: Aggregate = "step"
    """How the loss of its paper weighs tokens (train.aggregate). step: 002 eq. 11.
    token: 003 eq. 2, a mean over the tokens of all that is trained.
    """
    needs_values: bool = False
    """Every step must hold a critic's value (Step.value)."""


METHODS = {
    "grpo": Method(module="agentcli.credit.grpo"),
    "rloo": Method(module="agentcli.credit.rloo"),
    "gigpo": Method(module="agentcli.credit.gigpo"),
    "rewardflow": Method(module="agentcli.credit.rewardflow"),
    "spark": Method(module="agentcli.credit.spark"),
    "carl": Method(module="agentcli.credit.carl", aggregate="token"),
    "treerl": Method(module="agentcli.credit.treerl", aggregate="token"),
    "treerpo": Method(module="agentcli.credit.treerpo", aggregate="token"),
    "arpo": Method(module="agentcli.credit.arpo", aggregate="token"),
    "rlvmr": Method(module="agentcli.credit.rlvmr"),
    "dpepo": Method(module="agentcli.credit.dpepo"),
    "ppo": Method(module="agentcli.credit.ppo", needs_values=True),
}

REGISTRY = Registry(
    "agentcli.credit",
    {name: method.module for name, method in METHODS.items()},
    key="credit.method",
    what="credit method",
)

Assign = Callable[[Tree, Any], Credit]


class Explainer(NamedTuple):
    """How a method's advantages are explained."""

    equations: "Sequence[Equation]"
    evidence: "Callable[[Tree, Any, int], Evidence] | None"


def method_names() -> list[str]:
    """Names of the built-in and installed methods, sorted."""
    return REGISTRY.names()


def make(credit_settings: dict[str, Any]) -> tuple[str, Assign, msgspec.Struct]:
    """The name, the assign function and the complete typed settings that
    `Settings.credit` asks for.

    `credit_settings`: {"method": name, switch: value, ...}. Raises UsageError for an
    unknown method or switch, with the nearest name, and for a bad value.
    """
    switches = dict(credit_settings)
    name = switches.pop("method", None)
    if not isinstance(name, str):
        raise UsageError(
            f"credit.method: names no method; there are {', '.join(method_names())}"
        )
    module = REGISTRY.load(name)
    assign = module.assign
    kind = get_type_hints(assign)["settings"]
    fields = switches_of(name)
    for switch in switches:
        if switch not in fields:
            reason = getattr(module, "WITHOUT", {}).get(switch)
            because = f": {reason}" if reason else ""
            raise UsageError(
                f"credit.{switch}: {name} has no such switch{because}; "
                f"{nearest(switch, fields, 'it has')}"
            )
    try:
        return name, assign, msgspec.convert(switches, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"credit.{_fault(error, kind, switches)}") from error


def known(name: str) -> Method:
    """What is known of a method by its name alone; the defaults for an installed one,
    and for a name in a file of elsewhere.
    """
    return METHODS.get(name) or Method(module="")


def switches_of(name: str) -> list[str]:
    """The switches of a method, in their order. Raises UsageError for an unknown
    method.
    """
    return [
        field.name
        for field in msgspec.structs.fields(
            get_type_hints(REGISTRY.load(name).assign)["settings"]
        )
    ]


def shared_switches() -> set[str]:
    """The switches that mean the same in every method that has them: those that
    common.py defines.
    """
    from agentcli.credit.common import StateSwitches

    return {field.name for field in msgspec.structs.fields(StateSwitches)}


def changed(own: msgspec.Struct) -> dict[str, Any]:
    """The switches of a method's settings that are not its defaults; all where it has
    settings without a default.
    """
    values = msgspec.to_builtins(own)
    try:
        usual = msgspec.to_builtins(type(own)())
    except TypeError:
        return dict(values)
    return {name: value for name, value in values.items() if value != usual[name]}


def explainer(name: str) -> Explainer | None:
    """How the method's advantages are explained; None for a method without EQUATIONS.
    Raises UsageError for an unknown method.
    """
    module = REGISTRY.load(name)
    equations = getattr(module, "EQUATIONS", None)
    return (
        None
        if equations is None
        else Explainer(equations, getattr(module, "evidence", None))
    )


def _fault(
    error: msgspec.ValidationError, kind: type[msgspec.Struct], switches: dict[str, Any]
) -> str:
    """The field and what is wrong with its value, in one line.

    msgspec says "what - at `$.field`" for a wrong type, and a settings class "field:
    what" for a value out of range.
    """
    what, at, path = str(error).partition(" - at `$.")
    if not at:
        return what
    name = path.rstrip("`")
    choices = _choices(kind, name)
    if not choices:
        return f"{name}: {what[0].lower()}{what[1:]}"
    close = closest(str(switches[name]), choices)
    hint = f"; did you mean {close}?" if close else ""
    return f"{name}: must be one of {', '.join(choices)}, is {switches[name]!r}{hint}"


def _choices(kind: type[msgspec.Struct], name: str) -> tuple[str, ...]:
    """What a switch with a Literal type may be; empty for any other switch."""
    for field in msgspec.structs.fields(kind):
        if field.name == name:
            for one in (field.type, *get_args(field.type)):
                if get_origin(one) is Literal:
                    return get_args(one)
    return ()
