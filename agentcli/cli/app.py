"""The command line: which subcommands there are. Each is one file beside this one."""

import os
import warnings
from typing import Annotated

import typer

from agentcli import __version__
from agentcli.cli import (
    assign_credit,
    demos,
    doctor,
    env,
    eval,
    pass_at_k,
    preset,
    rollout,
    run,
    schema,
    sft,
    test_time_branch,
    train,
    validate,
)

COMMANDS = (
    demos,
    sft,
    rollout,
    assign_credit,
    train,
    eval,
    pass_at_k,
    test_time_branch,
    run,
    schema,
    validate,
    doctor,
)
GROUPS = {
    "env": (env, "Worlds: list them, check one, print a panel."),
    "preset": (preset, "Presets: list them, show one."),
}

SETTINGS = {"help_option_names": ["-h", "--help"]}


def build() -> typer.Typer:
    """The Typer app with every subcommand."""
    app = typer.Typer(
        name="agentcli",
        help="Train language-model agents in stages that read files and write files.",
        epilog="Example: agentcli rollout --method spark   (what a stage does: agentcli STAGE --help)",
        context_settings=SETTINGS,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_main_options)
    for module in COMMANDS:
        module.COMMAND.register(app)
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


Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")]


def _main_options(version: Version = False) -> None:
    """Options before the subcommand."""


app = build()


def main() -> None:
    """Entry point of `agentcli`. Warnings that libraries address to their callers are shown under AGENTCLI_DEBUG=1 only."""
    if os.environ.get("AGENTCLI_DEBUG") != "1":
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
    app()
