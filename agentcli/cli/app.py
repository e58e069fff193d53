"""The command line and its subcommands. Each of them is one file beside this one."""

import errno
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from agentcli import __version__
from agentcli.cli import (
    assign_credit,
    compare,
    credit,
    demos,
    doctor,
    env,
    eval,
    merge,
    pass_at_k,
    preset,
    rollout,
    run,
    schema,
    sft,
    show,
    test_time_branch,
    train,
    validate,
)
from agentcli.cli.completion import ASKED
from agentcli.cli.errors import FAILED, INTERRUPTED, say
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from agentcli.cli.command import Command
    from agentcli.cli.usage import Commands

COMMANDS = (
    demos,
    sft,
    rollout,
    assign_credit,
    train,
    eval,
    merge,
    pass_at_k,
    test_time_branch,
    compare,
    show,
    run,
    schema,
    validate,
    doctor,
)
GROUPS = {
    "credit": (credit, "Credit: how far methods agree on the same trees."),
    "env": (env, "Worlds: list them, check one, print a panel."),
    "preset": (preset, "Presets: list them, show one, copy one to change it."),
}

SETTINGS = {"help_option_names": ["-h", "--help"]}


def build(words: Sequence[str] | None = None) -> typer.Typer:
    """The Typer app with every subcommand.

    With `words`, what was typed, only commands named there have their options: the
    others would be made in vain.
    """
    app = typer.Typer(
        name="agentcli",
        help="Train language-model agents in stages that read files and write files.",
        epilog=(
            "Example: agentcli rollout --method spark   (what a stage does: agentcli "
            "STAGE --help)"
        ),
        context_settings=SETTINGS,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_main_options)
    for module in COMMANDS:
        module.COMMAND.register(
            app, whole=words is None or module.COMMAND.name in words
        )
    for name, (module, help) in GROUPS.items():
        group = typer.Typer(help=help, no_args_is_help=True, context_settings=SETTINGS)
        for command in module.COMMANDS:
            command.register(group)
        app.add_typer(group, name=name)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
]


def _main_options(version: Version = False) -> None:
    """Options before the subcommand."""


TypingError: type[Exception] = typer.BadParameter.__mro__[1]
"""What Typer raises for words that it cannot make sense of. It has no public name but
is the parent of one that has.
"""


def command_tree() -> "Commands":
    """Every command by its name. The commands of a group lie below the group's name."""
    tree: dict[str, Command | Commands] = {
        module.COMMAND.name: module.COMMAND for module in COMMANDS
    }
    for name, (module, _) in GROUPS.items():
        tree[name] = {command.name: command for command in module.COMMANDS}
    return tree


def main() -> None:
    """Entry point of `agentcli`."""
    # Such warnings are addressed to us, the callers of the libraries, not to the user.
    if os.environ.get("AGENTCLI_DEBUG") != "1":
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
    sys.exit(_run(sys.argv[1:]))


def _run(words: list[str]) -> int | None:
    """Do what the words say and return the exit code."""
    try:
        code: int | None = build(None if ASKED else words)(
            words, prog_name="agentcli", standalone_mode=False
        )
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except TypingError as error:
        from agentcli.cli.usage import asks_for_help, explain

        if asks_for_help(words, command_tree()):
            print(getattr(error, "message", ""), end="", file=sys.stderr)
        else:
            say(explain(error, words, command_tree()))
        return UsageError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted before anything was done; type the same command again")
        return INTERRUPTED
    except OSError as error:
        # Whoever reads our output may stop early, as `head` does: that is not worth a
        # message.
        if error.errno != errno.EPIPE:
            say(f"stdout: {error.strerror}")
        # Python flushes stdout once more at its end, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
