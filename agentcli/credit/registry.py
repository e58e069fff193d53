"""All credit methods by name; a method is imported when it is first used.

A method is a module with `assign(tree, settings) -> Credit`. The annotation of
`settings` is the class of the method's settings, which has exactly the switches that
can matter for the method. METHODS holds the facts that are known without an import. A
module may define three more names:

WITHOUT    why the method lacks a switch that other methods have
EQUATIONS  how a row's advantage is computed from its parts (equations.py)
evidence   (tree, settings, row) -> Evidence: further numbers for the equations

An installed package adds such modules under the entry-point group `agentcli.credit`.
A method that is not packaged is named by the location of its function:
"folder/file.py:function" or "package.module:function". The three other names are then
looked up in the function's module.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from agentcli.errors import UsageError
from agentcli.records.options import converted
from agentcli.records.training_settings import Aggregate
from agentcli.records.types import Credit, Tree
from agentcli.registry import Registry, nearest

if TYPE_CHECKING:
    from agentcli.credit.equations import Equation, Evidence


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a method that are known before it is imported."""

    aggregate: Aggregate = "step"
    """How the loss in the method's paper weights tokens (train.aggregate). step: 002
    eq. 11. token: 003 eq. 2, the mean over all trained tokens.
    """
    needs_values: bool = False
    """Whether every step must have a critic's value (Step.value)."""
    needs_scores: bool = False
    """Whether every step must have a process reward model's score (Step.score)."""


METHODS = {
    "grpo": Method(),
    "grpo-prm": Method(needs_scores=True),
    "rloo": Method(),
    "gigpo": Method(),
    "rewardflow": Method(),
    "spark": Method(),
    "carl": Method(aggregate="token"),
    "treerl": Method(aggregate="token"),
    "treerpo": Method(aggregate="token"),
    "arpo": Method(aggregate="token"),
    "rlvmr": Method(),
    "dpepo": Method(),
    "ppo": Method(needs_values=True),
    "rare-tool": Method(),
}

REGISTRY = Registry(
    "agentcli.credit",
    {name: f"agentcli.credit.{name.replace('-', '_')}" for name in METHODS},
    key="credit.method",
    kind="credit method",
    in_full=True,
)

Assign = Callable[[Tree, Any], Credit]


class Explainer(NamedTuple):
    """What is needed to explain a method's advantages."""

    equations: "Sequence[Equation]"
    evidence: "Callable[[Tree, Any, int], Evidence] | None"


def method_names() -> list[str]:
    """Names of the built-in and installed methods, sorted."""
    return REGISTRY.names()


def make(credit_settings: dict[str, Any]) -> tuple[str, Assign, msgspec.Struct]:
    """The name, the assign function and the complete settings of a method.

    `credit_settings`: {"method": name, switch: value, ...}. Raises UsageError for an
    unknown method or switch, with the nearest name, and for a bad value.
    """
    switches = dict(credit_settings)
    name = switches.pop("method", None)
    if not isinstance(name, str):
        raise UsageError(
            f"credit.method: names no method; there are {', '.join(method_names())}"
        )
    assign, names = REGISTRY.function(name, "assign")
    reasons = names.get("WITHOUT", {})
    return name, assign, settings_of(name, assign, switches, reasons)


def settings_of(
    name: str,
    assign: Assign,
    switches: dict[str, Any],
    reasons: Mapping[str, str] | None = None,
) -> msgspec.Struct:
    """The complete settings of the method `name`, with these values for its switches.

    `reasons` says why the method lacks a switch that others have. Raises UsageError for
    an unknown switch, with the nearest name, and for a bad value.
    """
    reasons = reasons or {}
    settings_class: type[msgspec.Struct] = REGISTRY.settings_class(assign)
    fields = [field.name for field in msgspec.structs.fields(settings_class)]
    for switch in switches:
        if switch not in fields:
            because = f": {reasons[switch]}" if switch in reasons else ""
            raise UsageError(
                f"credit.{switch}: {name} has no such switch{because}; "
                f"{nearest(switch, fields, 'it has')}"
            )
    return converted(switches, settings_class, "credit")


def known(name: str) -> Method:
    """Facts about a method, from its name alone.

    Methods that are not built in have the defaults.
    """
    return METHODS.get(name, Method())


def switches_of(name: str) -> list[str]:
    """The names of a method's switches, in order of definition.

    Raises UsageError for an unknown method.
    """
    settings_class = REGISTRY.settings_class(REGISTRY.function(name, "assign")[0])
    return [field.name for field in msgspec.structs.fields(settings_class)]


def shared_switches() -> set[str]:
    """The switches defined in switches.py, which mean the same in every method."""
    from agentcli.credit.switches import StateSwitches

    return {field.name for field in msgspec.structs.fields(StateSwitches)}


def changed(settings: msgspec.Struct) -> dict[str, Any]:
    """The switches whose values differ from the method's defaults."""
    values: dict[str, Any] = msgspec.to_builtins(settings)
    try:
        defaults = msgspec.to_builtins(type(settings)())
    except TypeError:
        # An installed method may have settings without a default: report them all.
        return values
    return {name: value for name, value in values.items() if value != defaults[name]}


def explainer(name: str) -> Explainer | None:
    """What explains the method's advantages; None for a method without EQUATIONS.

    Raises UsageError for an unknown method.
    """
    names = REGISTRY.function(name, "assign")[1]
    if "EQUATIONS" not in names:
        return None
    return Explainer(names["EQUATIONS"], names.get("evidence"))
