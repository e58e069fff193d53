"""Explains mistakes in the command line itself on one line, with what to type to see
the right words.

A mistake is an unknown command or option, reported with the nearest name, a value that
is missing or of the wrong type, or an argument too many. What is wrong is read from the
words and from the vocabulary of the commands; Typer's exception only says which word it
stumbled over.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import typer

from agentcli.cli.command import Command
from agentcli.registry import closest

Commands: TypeAlias = Mapping[str, "Command | Commands"]

HELP = ("--help", "-h")
BEFORE_A_COMMAND = (*HELP, "--version", "--install-completion", "--show-completion")
EXPECTED = {int: "a whole number", float: "a number"}


def asks_for_help(words: Sequence[str], commands: Commands) -> bool:
    """Whether nothing but a group was named, which shows the group's help."""
    node, path = _find(words, commands)
    return not isinstance(node, Command) and len(path) == len(words)


def explain(error: Exception, words: Sequence[str], commands: Commands) -> str:
    """Say what is wrong with `words`, for which Typer raised `error`, and what to type."""
    node, path = _find(words, commands)
    help = " ".join(["agentcli", *path, "--help"])
    return f"{_problem(error, words, node, path)} type: {help}"


def _find(
    words: Sequence[str], commands: Commands
) -> tuple["Command | Commands", list[str]]:
    """The command or group that the words name, and its path."""
    node: Command | Commands = commands
    path: list[str] = []
    for word in words:
        if isinstance(node, Command):
            break
        if word in node:
            node = node[word]
            path.append(word)
        # An option may stand before the command that it does not belong to.
        elif not word.startswith("-"):
            break
    return node, path


def _problem(
    error: Exception, words: Sequence[str], node: "Command | Commands", path: list[str]
) -> str:
    message = str(getattr(error, "message", error)).rstrip(".")
    message = message[:1].lower() + message[1:]
    option = getattr(error, "option_name", None)
    if isinstance(node, Command):
        problem = _problem_of_command(error, option, words, node)
        if problem is not None:
            return problem
        # A BadParameter names the option; of the others one must be told what the
        # command takes.
        if not isinstance(error, typer.BadParameter):
            message = f"{_takes(node)}: {message}"
        return f"{message};"
    if option is not None:
        return (
            f"no option {option};{_nearest(option, HELP if path else BEFORE_A_COMMAND)}"
        )
    unknown = next(
        (word for word in words[len(path) :] if not word.startswith("-")), None
    )
    if unknown is None:
        return f"{message};"
    name = " ".join([*path, unknown])
    group = "".join(f"{part} " for part in path)
    return f"no command {name};{_nearest(unknown, list(node), group)}"


def _problem_of_command(
    error: Exception, option: str | None, words: Sequence[str], command: Command
) -> str | None:
    options = {name: known for known in command.every_option for name in known.names}
    for word, after in itertools.pairwise(words):
        if word in options and options[word].takes_value and after in options:
            return f"{word} needs a value ({options[word].metavar}), not {after};"
    if option in options:
        needs = f"needs a value ({options[option].metavar})"
        return f"{option} {needs if options[option].takes_value else 'takes no value'};"
    if option is not None:
        return f"no option {option};{_nearest(option, [*HELP, *options])}"
    for name in getattr(getattr(error, "param", None), "opts", ()):
        if name in options and options[name].kind in EXPECTED:
            return (
                f"{_typed(words, options[name].names)}: expected "
                f"{EXPECTED[options[name].kind]};"
            )
    return None


def _takes(command: Command) -> str:
    return (
        f"{command.name} takes "
        f"{' and '.join(str(known.metavar) for known in command.arguments) or 'options only'}"
    )


def _typed(words: Sequence[str], names: Sequence[str]) -> str:
    """The option as it was typed last, with its value."""
    for place in reversed(range(len(words))):
        name, equals, value = words[place].partition("=")
        if name in names:
            return (
                f"{name} {value if equals else ' '.join(words[place + 1 : place + 2])}"
            )
    return names[0]


def _nearest(name: str, known: Sequence[str], before: str = "") -> str:
    close = closest(name, known)
    return f" did you mean {before}{close}?" if close else ""
