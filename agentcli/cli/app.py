"""The command line and its subcommands.

Every subcommand is a body, the options that take effect there, and an example.
`COMMANDS` names the file of each.
"""

import errno
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from agentcli.cli import (
    checks,
    credit,
    env,
    evaluation,
    pictures,
    preset,
    publishing,
    serve,
    show,
    study,
    training,
    trees,
)
from agentcli.cli.call import register
from agentcli.cli.command import Command
from agentcli.cli.completion import ASKED
from agentcli.cli.errors import FAILED, INTERRUPTED, say
from agentcli.errors import UsageError
from agentcli.version import __version__

COMMANDS = (
    trees.DEMOS,
    training.SFT,
    trees.ROLLOUT,
    credit.ASSIGN,
    training.TRAIN,
    evaluation.EVAL,
    trees.MERGE,
    evaluation.PASS_AT_K,
    evaluation.TEST_TIME_BRANCH,
    evaluation.COMPARE,
    show.COMMAND,
    pictures.VIEW,
    pictures.PLOT,
    publishing.EXPORT,
    trees.IMPORT,
    publishing.PUSH,
    training.RUN,
    study.COMMAND,
    serve.COMMAND,
    checks.SCHEMA,
    checks.VALIDATE,
    checks.DOCTOR,
)
GROUPS = {
    "credit": credit.COMMANDS,
    "env": env.COMMANDS,
    "preset": preset.COMMANDS,
}
GROUP_HELPS = {
    "credit": "Credit: how far methods agree on the same trees.",
    "env": "Worlds: list them, check one, print a panel, serve one.",
    "preset": "Presets: list them, show one, copy one to change it.",
}
CONTEXT = {"help_option_names": ["-h", "--help"]}

TypingError: type[Exception] = typer.BadParameter.__mro__[1]
"""What Typer raises for words that it cannot parse. The class has no public name, but
it is the parent of one that has.
"""

NO_ROOM = b"error: memory ran out; allow more with: ulimit -v unlimited\n"


def main() -> None:
    """Entry point of `agentcli`."""
    # Whatever the locale lacks is escaped.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # These warnings are for the callers of libraries, i.e. us, not for the user.
    if os.environ.get("AGENTCLI_DEBUG") != "1":
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
    sys.exit(_run(sys.argv[1:]))


def _run(words: list[str]) -> int | None:
    """Runs the command given by the words and returns the exit code."""
    words = without_help(words)
    # Manifests hold what was typed, and are UTF-8.
    odd = [word for word in words if word.encode(errors="ignore").decode() != word]
    if odd:
        say(f"{odd[0]}: not UTF-8; give the file or folder another name")
        return UsageError.exit_code
    try:
        # For a completion the shell gives no command, so any of them may be needed.
        app = build(None if ASKED else words)
        # Standalone, Typer would print errors in its own form and exit.
        code: int | None = app(words, prog_name="agentcli", standalone_mode=False)
        # Flushed here, where a full disk or a closed pipe can still be reported.
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except TypingError as error:
        from agentcli.cli.typed import asks_for_help, explain

        if asks_for_help(words, command_tree()):
            print(getattr(error, "message", ""), end="")
            return 0
        say(explain(error, words, command_tree()))
        return UsageError.exit_code
    except typer.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted before anything was done; type the same command again")
        return INTERRUPTED
    except MemoryError:
        # There was no room to word the error either.
        os.write(2, NO_ROOM)
        return FAILED
    except OSError as error:
        # The reader of our output may stop early, as `head` does; that needs no
        # message.
        if error.errno != errno.EPIPE:
            say(f"stdout: {error.strerror}")
        # Python flushes stdout once more when it exits, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED


def without_help(words: list[str]) -> list[str]:
    """`help COMMAND` is another way to type `COMMAND --help`."""
    return [*words[1:], "--help"] if words[:1] == ["help"] else words


def build(words: Sequence[str] | None = None) -> typer.Typer:
    """The Typer app with every subcommand.

    With `words` (what was typed), only commands named there get their options. Building
    the others would only cost time.
    """
    app = typer.Typer(
        name="agentcli",
        help="Train language-model agents in stages that read and write files.",
        epilog=(
            "Example: agentcli rollout --method spark   (`agentcli help STAGE` says "
            "what a stage does)"
        ),
        context_settings=CONTEXT,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_main_options)
    for command in COMMANDS:
        register(command, app, words)
    for name, commands in GROUPS.items():
        group = typer.Typer(
            help=GROUP_HELPS[name], no_args_is_help=True, context_settings=CONTEXT
        )
        of_group = words if words is None or name in words else ()
        for command in commands:
            register(command, group, of_group)
        app.add_typer(group, name=name)
    return app


def command_tree() -> dict[str, Command | dict[str, Command]]:
    """Every command by its name, or by the name of its group and its own."""
    tree: dict[str, Command | dict[str, Command]]
    tree = {command.name: command for command in COMMANDS}
    for name, commands in GROUPS.items():
        tree[name] = {command.name: command for command in commands}
    return tree


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        "-V",
        callback=_print_version,
        is_eager=True,
        help="Print the version.",
    ),
]


def _main_options(version: Version = False) -> None:
    """Options that come before the subcommand."""
