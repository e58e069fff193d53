"""Sections of settings: their base class, bounded numbers, and how values are read.

A bad value or name is refused in one line that names the key, and the nearest name or
the choices.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from agentcli.errors import UsageError
from agentcli.registry import closest, nearest

OptionsT = TypeVar("OptionsT", bound=msgspec.Struct)
Hint = Callable[[str, list[str]], str]

Share = Annotated[float, Meta(ge=0, le=1)]
Decay = Annotated[float, Meta(ge=0, lt=1)]
Positive = Annotated[float, Meta(gt=0, le=1e9)]
Finite = Annotated[float, Meta(ge=-1e9, le=1e9)]
NotNegative = Annotated[float, Meta(ge=0, le=1e9)]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Seed = Annotated[int, Meta(ge=0, le=2**53)]
CountFromZero = Annotated[int, Meta(ge=0, le=1_000_000_000)]


class Section(Struct, forbid_unknown_fields=True):
    """Base of all settings sections."""


def nearest_of(path: str, names: list[str]) -> str:
    """The hint for an unknown name: the nearest of those that there are."""
    return nearest(path, names) if names else "it has none"


def read(
    values: Mapping[str, Any],
    kind: type[OptionsT],
    place: str,
    owner: str = "",
    hint: Hint = nearest_of,
) -> OptionsT:
    """The values, typed and complete.

    `place` begins an error, up to the path of the value in `values`; `owner` has the
    settings, if it is not agentcli. `hint` gets the path of an unknown name and the
    names that there are beside it. Raises UsageError for an unknown name or a bad
    value.
    """
    fault = f"{owner} has no such setting" if owner else "no such setting"
    for path, names in _unknown(values, kind, ""):
        raise UsageError(f"{place}{path}: {fault}; {hint(path, names)}")
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        fault, path = fault_and_path(error)
        # The check in the class itself already says "field: fault".
        if not path:
            raise UsageError(f"{place}{fault}") from error
        # results[0].measure has the choices of the field; equal[0] is a choice itself.
        without_keys = re.sub(r"\[(\.\.\.|\d+(?=\]\.))\]", "", path)
        path = _with_key(values, kind, path)
        value = value_at(values, path)
        choices = [str(choice) for choice in choices_at(kind, without_keys, value)]
        if choices and not fault.startswith("expected array"):
            fault = f"must be one of {', '.join(choices)}"
            if value is not None:
                close = closest(str(value), choices)
                fault += f", is {value!r}" + (
                    f"; did you mean {close}?" if close else ""
                )
        raise UsageError(f"{place}{path}: {fault}") from error


def fault_and_path(error: msgspec.ValidationError) -> tuple[str, str]:
    """The fault that msgspec names, and the path of the value; "" for the whole."""
    # msgspec writes "at key in $..." for a key of a mapping and "at $..." for a value.
    text = str(error).replace("`", "")
    fault, _, path = text.replace("at key in $", "at $").partition(" - at $")
    path = path.lstrip(".")
    missing = fault.removeprefix("Object missing required field ")
    if missing != fault:
        return "is missing", f"{path}.{missing}".lstrip(".")
    of_key = "one of its names: " if " - at key in $" in text else ""
    if of_key and "matching regex" in fault:
        fault = "takes up to 61 letters, digits and ._-, the first no sign"
    return f"{of_key}{fault[:1].lower()}{fault[1:]}", path


def _with_key(values: Mapping[str, Any], kind: type[msgspec.Struct], path: str) -> str:
    """The path of a bad value with the key of a mapping, for which msgspec has [...]."""
    above, dots, below = path.partition("[...]")
    if not dots:
        return path
    trial = copy.deepcopy(dict(values))
    entries: Any = trial
    # Before a mapping's key there are fields and places in lists, no names of users.
    for key in re.findall(r"[^.\[\]]+", above):
        entries = entries[int(key) if isinstance(entries, list) else key]
    for key, entry in tuple(entries.items()):
        entries.clear()
        entries[key] = entry
        try:
            msgspec.convert(trial, kind)
        except msgspec.ValidationError as error:
            if fault_and_path(error)[1] == path:
                return f"{above}.{key}{below}"
    return path


def section_in(kind: Any) -> type[msgspec.Struct] | None:
    """The section that a field of this type may hold; None for a plain value."""
    for one in (kind, *get_args(kind)):
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            return one
    return None


def choices_at(section: type[msgspec.Struct], path: str, value: Any) -> tuple[Any, ...]:
    """The values that a Literal setting, or each item of a list of them, may have.

    `value` is what it has.
    """
    kind: Any = section
    for key in path.partition("[")[0].split("."):
        inner = section_in(kind)
        kind = None if inner is None else _types(inner).get(key)
    if "[" in path and get_origin(kind) is list:
        (kind,) = get_args(kind)
    kinds = (kind, *get_args(kind))
    # A setting that may also be a list of numbers has more than these choices.
    if not isinstance(value, str) and any(
        get_origin(one) is Annotated for one in kinds
    ):
        return ()
    for one in kinds:
        if get_origin(one) is Literal:
            return get_args(one)
    return ()


def _types(section: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(section)}


def _unknown(
    values: Mapping[str, Any], kind: type[msgspec.Struct], above: str
) -> Iterator[tuple[str, list[str]]]:
    """The path of every unknown name, and the names that there are beside it."""
    types = _types(kind)
    for name, value in values.items():
        path = f"{above}{name}"
        if name not in types:
            yield path, [f"{above}{known}" for known in types]
            continue
        inner = section_in(types[name])
        if inner is None:
            continue
        sections = {"": value}
        # The keys of a mapping of sections are the user's own.
        if get_origin(types[name]) is dict and isinstance(value, Mapping):
            sections = {f".{key}": section for key, section in value.items()}
        elif get_origin(types[name]) is list and isinstance(value, list):
            sections = {f"[{place}]": section for place, section in enumerate(value)}
        for key, section in sections.items():
            if isinstance(section, Mapping):
                yield from _unknown(section, inner, f"{path}{key}.")


def value_at(values: Any, path: str) -> Any:
    """The value at a dotted path of nested mappings; None if there is none."""
    for key in path.split("."):
        values = values.get(key) if isinstance(values, Mapping) else None
    return values
