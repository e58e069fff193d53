"""Reads `environment.options`, the settings that a world has for itself."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from agentcli.errors import UsageError
from agentcli.registry import nearest

PLACE = "environment.options"

OptionsT = TypeVar("OptionsT", bound=msgspec.Struct)


def read_options(options: Mapping[str, Any], kind: type[OptionsT]) -> OptionsT:
    """Decodes options into the struct of a world.

    Raises UsageError that names the option, with the nearest name for an unknown one.
    """
    _refuse_unknown(options, kind, PLACE)
    try:
        return msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        raise refusal_of(error) from error


def refusal_of(error: msgspec.ValidationError) -> UsageError:
    """The error of a user whose options do not fit a struct."""
    fault, _, field = str(error).replace("`", "").partition(" - at $")
    return UsageError(f"{PLACE}{field}: {fault[0].lower()}{fault[1:]}")


def _refuse_unknown(
    options: Mapping[str, Any],
    kind: type[msgspec.Struct],
    place: str,
) -> None:
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in options.items():
        if name not in types:
            raise UsageError(f"{place}.{name}: no such setting; {nearest(name, types)}")
        inner = types[name]
        is_section = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
        if is_section and isinstance(value, Mapping):
            _refuse_unknown(value, inner, f"{place}.{name}")
