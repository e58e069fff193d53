"""Options generated from the settings of exploration and credit methods.

A setting of a method is one field with a docstring. The option, its help and its
completion are generated from that. This imports the methods. Help shows the options of
the method that is named with them (`--method NAME --help`).
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from agentcli.cli.command import Option, in_words, method_option
from agentcli.cli.completion import fixed
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from msgspec import Struct
    from msgspec.structs import FieldInfo

PLAIN = (int, float, str, bool)
"""The types of settings that can be typed as one word."""


def growth_options(method: str | None = None) -> tuple[Option, ...]:
    """The options of the exploration methods; those of `method` are shown.

    Voting is left out: it is a command of its own, test-time-branch.
    """
    from agentcli.exploration.registry import method_names
    from agentcli.exploration.settings import VOTING, added_fields, rollout_class

    names = [name for name in method_names() if name != VOTING]

    def options_of(name: str) -> Iterator[Option]:
        return _setting_options(rollout_class(name), added_fields(name), "rollout")

    return _of_methods(names, method, options_of)


def credit_options(method: str | None = None) -> tuple[Option, ...]:
    """The options of the credit methods; those of `method` are shown."""
    from agentcli.credit.registry import (
        method_names,
        shared_switches,
        switches_class,
    )

    def options_of(name: str) -> Iterator[Option]:
        from msgspec.structs import fields

        kind = switches_class(name)
        return _setting_options(kind, fields(kind), "credit")

    options = _of_methods(method_names(), method, options_of)
    shared = {f"credit.{name}" for name in shared_switches()}
    return tuple(
        dataclasses.replace(option, panel="With most methods")
        if option.path in shared
        else option
        for option in options
    )


def voting_options(method: str | None = None) -> tuple[Option, ...]:
    """Options for the vote of test-time branching; there is no other `method`."""
    from agentcli.exploration.settings import VOTING, added_fields, rollout_class

    kind = rollout_class(VOTING)
    return tuple(_setting_options(kind, added_fields(VOTING), "evaluation"))


def _of_methods(
    names: Iterable[str],
    named: str | None,
    options_of: Callable[[str], Iterable[Option]],
) -> tuple[Option, ...]:
    """One option for every name of a setting; the first method that has it says what.

    That is the method `named`, whose options are shown.
    """
    options: dict[str, Option] = {}
    if named is not None:
        try:
            for option in options_of(named):
                panel = f"Only with --method {named}"
                options[option.name] = dataclasses.replace(option, panel=panel)
        except UsageError:
            # An unknown method is refused where the settings are resolved.
            pass
    for name in names:
        for option in options_of(name):
            # Methods share names: the first one's help stands unless one is named.
            options.setdefault(option.name, dataclasses.replace(option, hidden=True))
    return tuple(options.values())


def _setting_options(
    kind: "type[Struct]", fields: "Iterable[FieldInfo]", section: str
) -> Iterator[Option]:
    """One option for every plain setting among the fields of a class."""
    from agentcli.records.docs import field_docs

    docs = field_docs(kind)
    for field in fields:
        value, choices = _typed_as(field.type)
        # A section or a list of numbers can be set only in a file or by --set.
        if value is None:
            continue
        flag = field.name.replace("_", "-")
        yield method_option(
            f"--{flag}/--no-{flag}" if value is bool else f"--{flag}",
            docs.get(field.name, ""),
            value,
            "|".join(choices) or None,
            fixed(*choices) if choices else None,
            default=in_words(field.default),
            path=f"{section}.{field.name}",
        )


def _typed_as(kind: Any) -> tuple[type | None, tuple[str, ...]]:
    """The type of a setting that is typed as one word, and its choices; else None."""
    inner = [part for part in get_args(kind) if part is not type(None)]
    origin = get_origin(kind)
    if origin is Literal:
        return str, tuple(map(str, inner))
    is_optional = origin in (Union, UnionType) and len(inner) == 1
    if origin is Annotated or is_optional:
        return _typed_as(inner[0])
    return (kind if kind in PLAIN else None), ()
