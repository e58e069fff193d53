"""All credit methods by name; a method is imported when it is first used.

A method is a module with `assign(tree, settings) -> Credit`. The annotation of
`settings` is the class of the method's settings, which has exactly the switches that
can matter for the method. METHODS holds the facts that are known without an import. A
module may also define EQUATIONS: how a row's advantage is computed from its parts
(equations.py).

An installed package adds such modules under the entry-point group `agentcli.credit`.
A method that is not packaged is named by the location of its function:
"folder/file.py:function" or "package.module:function". EQUATIONS is then looked up in
the function's module.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import wraps
from importlib import import_module
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from agentcli.errors import AgentCliError, DataError, UsageError
from agentcli.records.section import nearest_of, read
from agentcli.records.training_settings import Aggregate
from agentcli.records.types import Credit, Tree
from agentcli.registry import Registry, own_line, prints_aside

if TYPE_CHECKING:
    from agentcli.credit.equations import Equation
    from agentcli.credit.survey import Explained


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a method that are known before it is imported."""

    aggregate: Aggregate = "step"
    """How the loss in the method's paper weights tokens (train.aggregate). step:
    RewardFlow eq. 11. token: CARL eq. 2, the mean over all trained tokens.
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


def with_release(assign: Callable[..., Credit]) -> Callable[..., Credit]:
    """Adds `form: release` to the function of a method.

    The release's parts (release/__init__.py) then take the place of the paper's. They
    are loaded by name, so that a method's file knows nothing of the authors' code.
    """
    name = assign.__module__.rpartition(".")[2]

    # It keeps the annotation of `settings`, by which the switches are known.
    @wraps(assign)
    def of_form(tree: Tree, settings: Any) -> Credit:
        if settings.form == "paper":
            return assign(tree, settings)
        release = import_module("agentcli.credit.release")
        return assign(tree, settings, **release.PARTS[name])

    return of_form


def guarded(name: str, assign: Assign) -> Assign:
    """The function of a user's method, whose credit is checked before it is used.

    It gets a copy of the tree, so that what it changes there stays with it. Raises
    DataError for credit that does not fit the tree, AgentCliError for what the function
    raises.
    """

    @wraps(assign)
    def of_user(tree: Tree, settings: Any) -> Credit:
        try:
            with prints_aside():
                credit = assign(deepcopy(tree), settings)
        except AgentCliError:
            raise
        except SystemExit as error:
            raise AgentCliError(f"credit.method {name}: ends the program") from error
        except Exception as error:
            place = own_line(error) or f"credit.method {name}"
            raise AgentCliError(f"{place}: {type(error).__name__}: {error}") from error
        fault = misfit(credit, tree)
        if fault is not None:
            raise DataError(f"credit.method {name}: {fault}")
        return credit

    return of_user


def misfit(credit: Any, tree: Tree) -> str | None:
    """Why credit is not of this tree, or of no tree; None if it fits."""
    if not isinstance(credit, Credit):
        return f"gave {type(credit).__name__}, and must give a Credit"
    try:
        fault = _wrong_number(credit)
        if fault is not None:
            return fault
        msgspec.convert(msgspec.to_builtins(credit), Credit)
    # The last two are of types that no file holds, such as arrays.
    except (msgspec.ValidationError, OverflowError, TypeError, AttributeError) as error:
        return str(error)
    if credit.task != tree.task.id:
        return f"task: is {credit.task!r}, the tree's is {tree.task.id!r}"
    for position, row in enumerate(credit.steps):
        place = f"steps[{position}]"
        if row.step >= len(tree.steps):
            return f"{place}.step: is {row.step}, the tree has {len(tree.steps)} steps"
        if row.advantage is None and row.masked is None:
            return f"{place}: has no advantage; say why in `masked`"
    return None


def _wrong_number(credit: Credit) -> str | None:
    """The first number that is infinite, NaN or numpy's; None without one."""
    for position, row in enumerate(credit.steps):
        numbers = {"advantage": row.advantage, "weight": row.weight, **row.parts}
        for name, number in numbers.items():
            place = f"steps[{position}].{name}"
            kind = type(number)
            if kind not in (float, int, str, bool, NoneType):
                named = f"{kind.__module__}.{kind.__qualname__}"
                return f"{place}: is a {named}; write float(...)"
            if isinstance(number, float) and not math.isfinite(number):
                return f"{place} is not finite"
    return None


class Explainer(NamedTuple):
    """What is needed to explain a method's advantages."""

    equations: "Sequence[Equation]"
    assign: Assign

    def explained(self, tree: Tree, settings: Any, rows: Iterable[int]) -> "Explained":
        """The evidence of some rows; the method is run once for all of them."""
        from agentcli.credit.survey import explaining

        with explaining(rows) as explained:
            self.assign(tree, settings)
        return explained


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
    assign, _ = REGISTRY.function(name, "assign")
    settings = settings_of(name, assign, switches)
    return name, assign if name in METHODS else guarded(name, assign), settings


def settings_of(name: str, assign: Assign, switches: dict[str, Any]) -> msgspec.Struct:
    """The complete settings of the method `name`, with these values for its switches.

    Raises UsageError for an unknown switch, with the nearest name, and for a bad value.
    """
    settings_class: type[msgspec.Struct] = REGISTRY.settings_class(assign)
    return read(switches, settings_class, "credit.", name, hint=_hint)


def _hint(switch: str, names: list[str]) -> str:
    """What to do about a switch that a method lacks.

    It may be one method's own. Else the nearest name is meant.
    """
    owners = [name for name in METHODS if switch in switches_of(name)]
    if len(owners) == 1:
        return f"add --method {owners[0]}, or leave it out"
    return nearest_of(switch, names)


def known(name: str) -> Method:
    """Facts about a method, from its name alone.

    Methods that are not built in have the defaults.
    """
    return METHODS.get(name, Method())


def switches_class(name: str) -> type[msgspec.Struct]:
    """The class of a method's switches. Raises UsageError for an unknown method."""
    kind: type[msgspec.Struct]
    kind = REGISTRY.settings_class(REGISTRY.function(name, "assign")[0])
    return kind


def switches_of(name: str) -> tuple[str, ...]:
    """The names of a method's switches, in order of definition.

    Raises UsageError for an unknown method.
    """
    return switches_class(name).__struct_fields__


def shared_switches() -> set[str]:
    """The switches defined in switches.py, which mean the same in every method."""
    from agentcli.credit.switches import StateSwitches

    # The last class of the line, which inherits or repeats all of them.
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
    assign, names = REGISTRY.function(name, "assign")
    if "EQUATIONS" not in names:
        return None
    return Explainer(names["EQUATIONS"], assign)
