"""Converts typed options to settings, and refuses likely typing mistakes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import typer

from agentcli.cli.command import Option
from agentcli.errors import UsageError


def typed_settings(options: Sequence[Option], values: dict[str, Any]) -> dict[str, Any]:
    """Setting path -> value of the options that were typed.

    Raises UsageError for a --where without values.
    """
    settings = {}
    for option in options:
        value = values.get(option.name)
        if option.path is None or value is None:
            continue
        if option.path == "environment.where":
            value = parse_where(value)
        settings[option.path] = value
    return settings


def parse_where(texts: list[str]) -> dict[str, list[str]]:
    """The values of --where by key; values of a repeated key are combined.

    ["kind=a,b", "room=x"] and ["kind=a,b,room=x"] are both {"kind": ["a", "b"], "room":
    ["x"]}.
    """
    values: dict[str, list[str]] = {}
    for text in texts:
        key = ""
        for part in text.split(","):
            before, equals, after = part.partition("=")
            # Without "=" it is another value of the previous key.
            if equals:
                key = before.strip()
            value = (after if equals else before).strip()
            if not key or not value:
                raise UsageError(
                    f"--where {text}: write key=value, for instance --where "
                    "kind=pick_and_place_simple,room=kitchen"
                )
            values.setdefault(key, []).append(value)
    return values


def value_after(flag: str, words: Sequence[str]) -> str | None:
    """The last value that was typed for an option; None if there is none."""
    value = None
    for word, after in pairwise([*words, ""]):
        name, equals, text = word.partition("=")
        if name == flag:
            value = text if equals else after
    return value or None


def refuse_empty(words: Sequence[str]) -> None:
    """Raises typer.BadParameter for an empty word.

    An unset shell variable leaves an empty word, and as a path that would be this
    folder.
    """
    for before, word in pairwise(words):
        if not word:
            raise typer.BadParameter(f"there is an empty word after {before}")
        if word.startswith("--") and word.find("=") == len(word) - 1:
            raise typer.BadParameter(f"{word} is given an empty value")


def refuse_swallowed(options: Sequence[Option], values: dict[str, Any]) -> None:
    """Raises typer.BadParameter if an option took another option as its value."""
    names = {name for option in options for name in option.names}
    for option in options:
        if option.positional or not option.takes_value:
            continue
        value = values.get(option.name)
        for word in value if isinstance(value, list) else [value]:
            if str(word) in names:
                raise typer.BadParameter(
                    f"{option.shown} needs a value ({option.shown_value}), not {word}"
                )


def refuse_out_of_range(options: Sequence[Option], values: dict[str, Any]) -> None:
    """Raises UsageError for a number below `least` or above `most` of its option."""
    for option in options:
        value = values.get(option.name)
        if value is None or option.least is None:
            continue
        if option.most is None and value < option.least:
            raise UsageError(f"{option.shown} {value}: must be at least {option.least}")
        if option.most is not None and not option.least <= value <= option.most:
            bounds = f"from {option.least} to {option.most}"
            raise UsageError(f"{option.shown} {value}: must be {bounds}")
