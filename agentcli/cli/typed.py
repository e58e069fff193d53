"""What was typed: converts options to settings, and explains mistakes.

A mistake is an unknown command or option (reported with the nearest name), a missing
value, a value of the wrong type, or an extra argument. The explanation is derived from
the words and from the commands' options. Typer's exception only says at which word
parsing failed.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import typer

from agentcli.cli.command import Command, Option
from agentcli.errors import UsageError
from agentcli.registry import closest


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


Node: TypeAlias = "Command | Mapping[str, Node]"
"""A command, or a group of commands by name."""

HELP = ("--help", "-h")
BEFORE_A_COMMAND = (
    *HELP,
    "--version",
    "-V",
    "--install-completion",
    "--show-completion",
)
EXPECTED = {int: "a whole number", float: "a number"}


def asks_for_help(words: Sequence[str], commands: Node) -> bool:
    """Whether only a group was named, which shows the help of the group."""
    node, path = _node(words, commands)
    return not isinstance(node, Command) and len(path) == len(words)


def explain(error: Exception, words: Sequence[str], commands: Node) -> str:
    """Explains the `error` that Typer raised for `words`, and what to type."""
    node, path = _node(words, commands)
    if isinstance(node, Command):
        problem = _problem_of_command(error, words, node)
    else:
        problem = _problem_of_group(error, words, node, path)
    return f"{problem} type: {' '.join(['agentcli', *path, '--help'])}"


def _node(words: Sequence[str], commands: Node) -> tuple[Node, list[str]]:
    """The command or group that the words name, and its path."""
    node = commands
    path: list[str] = []
    for word in words:
        if isinstance(node, Command):
            break
        if word in node:
            node = node[word]
            path.append(word)
        # An option may be in front of the command, where it does not belong.
        elif not word.startswith("-"):
            break
    return node, path


def _problem_of_group(
    error: Exception, words: Sequence[str], names: Iterable[str], path: list[str]
) -> str:
    option = getattr(error, "option_name", None)
    if option is not None:
        return (
            f"no option {option};{_nearest(option, HELP if path else BEFORE_A_COMMAND)}"
        )
    for word in words[len(path) :]:
        if not word.startswith("-"):
            group = "".join(f"{part} " for part in path)
            return f"no command {group}{word};{_nearest(word, names, group)}"
    return f"{_message(error)};"


def _problem_of_command(
    error: Exception, words: Sequence[str], command: Command
) -> str:
    known = command.options_with(value_after("--method", words))
    options = {name: option for option in known for name in option.names}
    # Typer takes the next word for the value, even one that is an option.
    for word, value in pairwise(words):
        if word in options and options[word].takes_value and value in options:
            return f"{word} {_need(options[word])}, not {value};"
    name = getattr(error, "option_name", None)
    if name in options:
        return f"{name} {_need(options[name])};"
    if name is not None:
        return f"no option {name};{_nearest(name, [*HELP, *options])}"
    for name in getattr(getattr(error, "param", None), "opts", ()):
        if name in options and options[name].kind in EXPECTED:
            expected = EXPECTED[options[name].kind]
            return f"{_as_typed(options[name], words)}: expected {expected};"
    # A BadParameter names the option itself. After any other error the reader needs to
    # know which arguments the command takes.
    if isinstance(error, typer.BadParameter):
        return f"{_message(error)};"
    taken = " and ".join(option.shown for option in command.arguments) or "options only"
    if "--preset" in options and not command.arguments:
        taken += ", a preset as --preset NAME"
    return f"{command.name} takes {taken}: {_message(error)};"


def _need(option: Option) -> str:
    if option.takes_value:
        return f"needs a value ({option.shown_value})"
    return "takes no value"


def _as_typed(option: Option, words: Sequence[str]) -> str:
    """The last occurrence of the option as it was typed, with its value."""
    for place in reversed(range(len(words))):
        name, equals, value = words[place].partition("=")
        if name in option.names:
            values = [value] if equals else words[place + 1 : place + 2]
            return " ".join([name, *values])
    return option.shown


def _message(error: Exception) -> str:
    """Typer's error text, for use inside a sentence."""
    message = str(getattr(error, "message", error)).rstrip(".")
    return message[:1].lower() + message[1:]


def _nearest(name: str, known: Iterable[str], group: str = "") -> str:
    nearest = closest(name, known)
    return f" did you mean {group}{nearest}?" if nearest else ""
