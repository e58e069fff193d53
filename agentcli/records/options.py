"""Reads the settings of one world, method or objective, which has its own class.

A bad value or name is refused in one line that names the key, and the nearest name or
the choices.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from agentcli.errors import UsageError
from agentcli.registry import closest, nearest

OptionsT = TypeVar("OptionsT", bound=msgspec.Struct)


def read_options(
    options: Mapping[str, Any], kind: type[OptionsT], place: str, owner: str
) -> OptionsT:
    """The options at `place`, which belong to `owner`, typed and complete.

    Raises UsageError for an unknown name or a bad value.
    """
    _refuse_unknown(options, kind, place, owner)
    return converted(options, kind, place)


def converted(options: Mapping[str, Any], kind: type[OptionsT], place: str) -> OptionsT:
    """The options as an instance of `kind`; names are known. Raises UsageError."""
    try:
        return msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        fault, path = fault_and_path(error)
        # The check in the class itself already says "field: fault".
        if not path:
            raise UsageError(f"{place}.{fault}") from error
        choices = [str(choice) for choice in choices_at(kind, path)]
        if choices and path in options:
            value = options[path]
            close = closest(str(value), choices)
            hint = f"; did you mean {close}?" if close else ""
            fault = f"must be one of {', '.join(choices)}, is {value!r}{hint}"
        elif choices:
            fault = f"must be one of {', '.join(choices)}"
        raise UsageError(f"{place}.{path}: {fault}") from error


def fault_and_path(error: msgspec.ValidationError) -> tuple[str, str]:
    """The fault that msgspec names, and the path of the value; "" for the whole."""
    # msgspec writes "at key in $..." for a key of a mapping and "at $..." for a value.
    text = str(error).replace("`", "").replace("at key in $", "at $")
    fault, _, path = text.partition(" - at $")
    return f"{fault[:1].lower()}{fault[1:]}", path.lstrip(".")


def section_in(kind: Any) -> type[msgspec.Struct] | None:
    """The section that a field of this type may hold; None for a plain value."""
    for one in (kind, *get_args(kind)):
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            return one
    return None


def choices_at(section: type[msgspec.Struct], path: str) -> tuple[Any, ...]:
    """The values that a Literal setting, or each item of a list of them, may have."""
    kind: Any = section
    for key in path.partition("[")[0].split("."):
        inner = section_in(kind)
        kind = None if inner is None else _types(inner).get(key)
    if "[" in path and get_origin(kind) is list:
        (kind,) = get_args(kind)
    for one in (kind, *get_args(kind)):
        if get_origin(one) is Literal:
            return get_args(one)
    return ()


def _types(section: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(section)}


def _refuse_unknown(
    options: Mapping[str, Any], kind: type[msgspec.Struct], place: str, owner: str
) -> None:
    types = _types(kind)
    for name, value in options.items():
        if name not in types:
            hint = nearest(name, types) if types else "it has none"
            raise UsageError(f"{place}.{name}: {owner} has no such setting; {hint}")
        inner = section_in(types[name])
        if inner is not None and isinstance(value, Mapping):
            _refuse_unknown(value, inner, f"{place}.{name}", owner)
