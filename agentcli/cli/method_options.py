"""Options generated from the settings of exploration methods.

A setting of a method is one field with a docstring. The option, its help and its
completion are generated from that. This imports the methods.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from agentcli.cli.completion import fixed
from agentcli.cli.option import Option, in_words, method_option

PLAIN = (int, float, str, bool)
"""The types of settings that can be typed as one word."""


def growth_options() -> tuple[Option, ...]:
    """The options of the exploration methods, under headings that name the methods.

    Voting is left out: it is a command of its own, test-time-branch.
    """
    from agentcli.exploration.registry import method_names
    from agentcli.exploration.settings import VOTING

    options: dict[str, Option] = {}
    methods: dict[str, list[str]] = defaultdict(list)
    defaults: dict[str, list[str]] = defaultdict(list)
    for method in method_names():
        if method == VOTING:
            continue
        for option in setting_options(method, "rollout"):
            options.setdefault(option.name, option)
            methods[option.name].append(method)
            defaults[option.name].append(option.default or "")
    for name, option in options.items():
        options[name] = dataclasses.replace(
            option,
            panel=f"Only with --method {', '.join(methods[name])}",
            default=" or ".join(dict.fromkeys(filter(None, defaults[name]))),
        )
    return tuple(options.values())


def voting_options() -> tuple[Option, ...]:
    """Options for the vote of test-time branching."""
    from agentcli.exploration.settings import VOTING

    return tuple(setting_options(VOTING, "evaluation"))


def setting_options(method: str, section: str) -> Iterator[Option]:
    """One option for every plain setting that a method adds, as `section`.NAME."""
    from agentcli.exploration.settings import added_fields, rollout_class
    from agentcli.records.docs import field_docs

    docs = field_docs(rollout_class(method))
    for field in added_fields(method):
        kind, choices = _typed_as(field.type)
        # A section or a list of numbers can be set only in a file or by --set.
        if kind is None:
            continue
        flag = field.name.replace("_", "-")
        yield method_option(
            f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}",
            f"{section}.{field.name}",
            docs.get(field.name, ""),
            kind,
            "|".join(choices) or None,
            fixed(*choices) if choices else None,
            default=in_words(field.default),
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
