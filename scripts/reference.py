"""The reference, made from the code: commands, settings, methods, presets and records as Markdown.

Nothing in it is written by hand, so that it cannot say anything but what the commands read. site.py puts it in the site.
"""

import inspect
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT

import agentcli.api
from agentcli.analysis.schema import KINDS
from agentcli.cli.app import GROUP_HELPS, command_tree
from agentcli.cli.command import Command, Option
from agentcli.credit import registry as credit
from agentcli.credit.lists import Rollouts
from agentcli.exploration import registry as exploration
from agentcli.exploration.settings import added_fields, rollout_class
from agentcli.records.docs import field_docs
from agentcli.records.settings import Settings
from agentcli.records.step_rows import StepRow
from agentcli.stages.layers import list_presets
from agentcli.training.objectives import make_objective, objective_names
from agentcli.worlds.alfworld.options import AlfworldOptions
from agentcli.worlds.ezpoints import EzPointsOptions
from agentcli.worlds.scienceworld.engine import ScienceWorldOptions
from agentcli.worlds.search_qa.options import SearchQaOptions
from agentcli.worlds.sokoban.rules import SokobanOptions
from agentcli.worlds.textarena import TextArenaOptions
from agentcli.worlds.textworld import TextWorldOptions
from agentcli.worlds.tool_qa.questions import ToolQaOptions
from agentcli.worlds.webshop.generator import WebshopOptions

METHODS_OF_SECTIONS = ("rollout", "credit")
"""Sections whose settings depend on a method, which methods.md lists."""
WORLDS = {
    "alfworld": AlfworldOptions,
    "ezpoints": EzPointsOptions,
    "scienceworld": ScienceWorldOptions,
    "search_qa": SearchQaOptions,
    "sokoban": SokobanOptions,
    "textarena": TextArenaOptions,
    "textworld": TextWorldOptions,
    "tool_qa": ToolQaOptions,
    "webshop": WebshopOptions,
}
"""The options of the worlds that are built in."""
LARGEST_SHOWN = 1e9
"""Limits from here on only keep sums finite."""


def reference_pages() -> dict[str, str]:
    """The text of every page by its place in the site."""
    return {
        "reference/commands.md": commands_page(),
        "reference/settings.md": settings_page(),
        "reference/methods.md": methods_page(),
        "reference/presets.md": presets_page(),
        "reference/records.md": records_page(),
        "reference/python.md": python_page(),
    }


def commands_page() -> str:
    """Every command with its options."""
    parts = [
        "# Commands",
        "What each command reads and writes, and every option that takes effect there.",
    ]
    for name, node in command_tree().items():
        if isinstance(node, Command):
            parts += command_part(f"agentcli {name}", node)
            continue
        parts += [f"## agentcli {name}", GROUP_HELPS[name]]
        for inner, command in node.items():
            parts += command_part(f"agentcli {name} {inner}", command, "###")
    return page(parts)


def every_command() -> Iterator[Command]:
    """All commands, those in groups too."""
    for node in command_tree().values():
        yield from [node] if isinstance(node, Command) else node.values()


def command_part(title: str, command: Command, level: str = "##") -> list[str]:
    """Help, arguments, options and the example of one command."""
    rows = [option_row(option) for option in command.options_with()]
    usage = " ".join([title, *(f"[{option.shown}]" for option in command.arguments)])
    return [
        f"{level} {title}",
        inspect.cleandoc(command.body.__doc__ or ""),
        code(usage, "text"),
        table(("Option", "Value", "Setting", "What it does"), rows),
        f"Example: `{command.example}`",
    ]


def option_row(option: Option) -> tuple[str, ...]:
    """The row of an option or a positional argument."""
    names = " ".join(option.names) or option.shown
    value = option.shown_value if option.takes_value and not option.positional else ""
    return literal(names), literal(value), literal(option.path), cell(option.whole_help)


def settings_page() -> str:
    """Every setting that all methods share, by section."""
    intro = (
        "A setting is written in a file (`policy: {temperature: 0.7}`), typed (`--set policy.temperature=0.7`), or "
        "exported (`AGENTCLI_POLICY__TEMPERATURE=0.7`). [Running stages](../guides/running.md) says which one wins. "
        "What one method adds to `rollout` and `credit` is under [methods](methods.md)."
    )
    parts = ["# Settings", intro]
    plain = []
    for field in msgspec.structs.fields(Settings):
        if is_section(field.type):
            parts += section_part(field.name, field.type, "##")
        elif field.name not in METHODS_OF_SECTIONS:
            plain.append(field.name)
    parts += ["## Beside the sections", fields_table(Settings, "", plain)]
    for world, options in WORLDS.items():
        parts += section_part(
            "environment.options", options, "##", f"environment.options of {world}"
        )
    return page(parts)


def section_part(
    path: str, kind: Any, level: str, title: str | None = None
) -> list[str]:
    """A section, and the sections inside it."""
    names = kind.__struct_fields__
    inner = [name for name in names if is_section(get_type_hints(kind)[name])]
    plain = [name for name in names if name not in inner]
    parts = [
        f"{level} {title or path}",
        inspect.cleandoc(kind.__doc__ or ""),
        fields_table(kind, f"{path}.", plain),
    ]
    for name in inner:
        parts += section_part(f"{path}.{name}", get_type_hints(kind)[name], f"{level}#")
    return parts


def methods_page() -> str:
    """The methods of growing trees, giving credit and learning, with their settings."""
    intro = "What a method adds to the [settings](settings.md) that all methods share. Papers are named as in [PAPERS](../papers.md)."
    parts = [
        "# Methods",
        intro,
        "## Growing trees",
        "`agentcli rollout --method NAME`, or `rollout.method`.",
    ]
    for name in exploration.method_names():
        names = [field.name for field in added_fields(name)]
        parts += [f"### {name}", first_paragraph(exploration.REGISTRY.load(name))]
        parts.append(
            fields_table(rollout_class(name), "rollout.", names)
            or "No settings of its own."
        )
        parts += [
            fields_table(field.type, f"rollout.{field.name}.")
            for field in added_fields(name)
            if is_section(field.type)
        ]
    parts += [
        "## Giving credit",
        "`agentcli assign-credit --method NAME`, or `credit.method`.",
    ]
    for name in credit.method_names():
        _, assign, settings = credit.make({"method": name})
        parts += [
            f"### credit: {name}",
            first_paragraph(import_module(assign.__module__)),
        ]
        parts.append(fields_table(type(settings), "credit."))
    parts += ["## Learning", "`agentcli train --set train.objective=NAME`."]
    for name in objective_names():
        objective = make_objective(name)
        parts += [
            f"### objective: {name}",
            first_paragraph(type(objective)),
            fields_table(objective.options, "train.options.")
            or "No settings of its own.",
        ]
    return page(parts)


def presets_page() -> str:
    """The shipped presets, with the source of every value."""
    intro = "`agentcli preset show NAME` prints one, `agentcli preset copy NAME mine.yaml` makes one of your own from it."
    parts = ["# Presets", intro]
    for path in list_presets():
        text = path.read_text(encoding="utf-8")
        parts += [
            f"## {path.stem}",
            text.splitlines()[0].removeprefix("# ") + ".",
            code(text, "yaml"),
        ]
    return page(parts)


def records_page() -> str:
    """The records that files hold."""
    intro = (
        "Files hold JSON Lines: one complete record a line. `agentcli schema NAME` prints the JSON Schema of a record, "
        "`agentcli validate RUN` checks every line of a run."
    )
    parts = ["# Records", intro]
    for kind in KINDS:
        if kind.type is Settings:
            continue
        place = (
            f"In `{kind.place}` of a run." if kind.place else "Part of other records."
        )
        if kind.name == "panel":
            place = "A file for `--panel`."
        docs = inspect.cleandoc(kind.type.__doc__ or "")
        parts += [f"## {kind.name}", docs, place, fields_table(kind.type, "")]
    return page(parts)


def python_page() -> str:
    """What can be imported from the package."""
    parts = [
        "# Python",
        first_paragraph(agentcli.api),
        "The examples read a run `runs/x` of a small world.",
    ]
    for name in agentcli.__all__:
        function = getattr(agentcli, name)
        if callable(function):
            text, _, example = inspect.cleandoc(function.__doc__ or "").partition(
                "\n\n>>> "
            )
            signature = f"{name}{inspect.signature(function)}".replace("'", "")
            parts += [f"## {name}", code(signature, "python"), text]
            parts += [code(f">>> {example}", "pycon")] if example else []
    columns = field_docs(StepRow)
    parts += ["## Columns of steps", fields_table(StepRow, "")] if columns else []
    parts += ["## Lists of rollouts", fields_table(Rollouts, "")]
    return page(parts)


def fields_table(kind: Any, prefix: str, names: Sequence[str] | None = None) -> str:
    """A table of some fields of a struct, of all without `names`."""
    if names is None:
        names = kind.__struct_fields__
    docs = field_docs(kind)
    hints = get_type_hints(kind, include_extras=True)
    defaults = {
        field.name: default_words(field) for field in msgspec.structs.fields(kind)
    }
    options = options_by_path()
    rows = []
    for name in names:
        path = prefix + name
        typed = [options.get(path, "")] if prefix else []
        rows.append(
            (
                literal(path),
                cell(type_words(hints[name])),
                defaults[name],
                *typed,
                cell(docs.get(name, "")),
            )
        )
    head = (
        ("Setting", "Type", "Default", "Option", "Meaning")
        if prefix
        else ("Field", "Type", "Default", "Meaning")
    )
    return table(head, rows)


@cache
def options_by_path() -> dict[str, str]:
    """The options that type each setting, in backticks."""
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for command in every_command():
        for option in command.options_with():
            if option.path:
                names[option.path] |= dict.fromkeys(option.names or [option.shown])
    return {path: " ".join(map(literal, words)) for path, words in names.items()}


def default_words(field: msgspec.structs.FieldInfo) -> str:
    """A field's default; a field that must be written has none."""
    default = field.default
    if default is NODEFAULT and field.default_factory is not NODEFAULT:
        default = field.default_factory()
    return (
        ""
        if default in (NODEFAULT, msgspec.UNSET)
        else literal(json.dumps(msgspec.to_builtins(default)))
    )


def type_words(kind: Any) -> str:
    """A type in words: "number from 0 to 1"."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return " ".join([type_words(inner[0]), *bounds(inner[1])])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (Union, UnionType):
        return " or ".join(type_words(one) for one in inner)
    if origin in (list, tuple):
        return "list of " + type_words(inner[0])
    if origin is dict:
        return "map of " + type_words(inner[1])
    words = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "true or false",
        NoneType: "none",
        Any: "anything",
    }
    return words.get(kind) or f"`{kind.__name__}`"


def bounds(meta: msgspec.Meta) -> Iterator[str]:
    """The limits of a number or a list."""
    for word, limit in (
        ("from", meta.ge),
        ("above", meta.gt),
        ("to", meta.le),
        ("with at least", meta.min_length),
    ):
        if limit is not None and abs(limit) < LARGEST_SHOWN:
            yield f"{word} {limit:g}"


def is_section(kind: Any) -> bool:
    """Whether a setting is a group of settings."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def first_paragraph(module: Any) -> str:
    """What the docstring of a method's module says first."""
    return cell(inspect.cleandoc(module.__doc__ or "").split("\n\n")[0])


def page(parts: list[str]) -> str:
    """Parts of a page with a line between them."""
    return "\n\n".join(part for part in parts if part) + "\n"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table; nothing for no rows."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else ""


def literal(text: str | None) -> str:
    """Text as it is typed. A bar in backticks would end the cell of a table."""
    if text and "|" in text:
        return f"<code>{cell(text)}</code>"
    return f"`{text}`" if text else ""


def cell(text: str) -> str:
    """Words that may stand in a table and begin no tag."""
    return text.replace("<", "&lt;").replace("|", "&#124;")


def code(text: str, language: str) -> str:
    """A fenced block."""
    return f"```{language}\n{text.strip()}\n```"
