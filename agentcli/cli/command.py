"""The definition of a subcommand, a body with options and an example, and of an option.

All options are defined in one place (options.py). The body gets a Call (call.py), which
makes a Typer command of this, and calls one stage.
"""

import dataclasses
import inspect
from collections.abc import Callable
from functools import partial
from keyword import iskeyword
from typing import Annotated, Any

import typer

from agentcli.cli.completion import ASKED, Values, completer
from agentcli.errors import UsageError

METAVARS = {int: "N", float: "X", str: "TEXT"}
"""Placeholders for values in a command's help, if the option gives none."""


@dataclasses.dataclass(frozen=True)
class Option:
    """One option, or a positional argument if `flags` does not begin with a dash.

    `flags` lists every way to type it: `--json`, `--out -o`, `--x/--no-x`. `path` is
    the setting that it overrides; such an option is None unless it was typed, so that
    it never overrides a file by default. An option without a path controls the command
    itself and is never recorded. The shell offers `values`.
    """

    flags: str
    help: str
    kind: Any = str
    metavar: str | None = None
    values: Values | None = None
    path: str | None = None
    panel: str = "Options"
    default: str | None = None
    """The setting's default in words, if not all methods have the setting."""
    hidden: bool = False
    """Whether help leaves it out unless a method is named: it is of few methods."""
    least: int | None = None
    """The smallest number that it takes, if it is no setting, whose type says so."""
    most: int | None = None
    """The largest such number; only beside `least`."""

    @property
    def positional(self) -> bool:
        return not self.flags.startswith("-")

    @property
    def name(self) -> str:
        """The name of its value in a Call: `max_steps` for `--max-steps`.

        It is also a parameter's, so that a word of Python gets an underscore.
        """
        first = self.flags.split()[0].partition("/")[0]
        name = first.lstrip("-").replace("-", "_")
        return f"{name}_" if iskeyword(name) else name

    @property
    def names(self) -> tuple[str, ...]:
        """Every word that sets it: --json; --quiet and -q; --x and --no-x."""
        return () if self.positional else tuple(self.flags.replace("/", " ").split())

    @property
    def shown(self) -> str:
        """The name that messages use for it."""
        return self.shown_value if self.positional else self.names[0]

    @property
    def shown_value(self) -> str:
        """The name that help and messages use for its value."""
        if self.metavar is not None:
            return self.metavar
        return self.name.upper() if self.positional else METAVARS[self.kind]

    @property
    def takes_value(self) -> bool:
        return self.kind is not bool

    def to(
        self, path: str, help: str | None = None, values: Values | None = None
    ) -> "Option":
        """The same option for another setting."""
        return dataclasses.replace(
            self, path=path, help=help or self.help, values=values or self.values
        )

    @property
    def whole_help(self) -> str:
        """The help text, followed by the setting's default if there is one to show."""
        default = self.default or default_of(self.path)
        return f"{self.help} Default: {default}." if default else self.help

    def parameter(self) -> inspect.Parameter:
        """The function parameter from which Typer creates this option."""
        complete = completer(self.values) if self.values and ASKED else None
        # Without the empty metavar, Typer would show a type, as if a switch had a
        # value.
        metavar = self.shown_value if self.takes_value else ""
        detail: Any
        if self.positional:
            detail = typer.Argument(
                metavar=metavar, help=self.whole_help, autocompletion=complete
            )
        else:
            detail = typer.Option(
                *self.flags.split(),
                metavar=metavar,
                help=self.whole_help,
                rich_help_panel=self.panel,
                autocompletion=complete,
                hidden=self.hidden,
            )
        # The switch of a setting has three values: on, off, and as in the files.
        is_switch = self.kind is bool and self.path is None
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if is_switch else None,
            annotation=Annotated[bool if is_switch else self.kind | None, detail],
        )


world_option = partial(Option, panel="World")
policy_option = partial(Option, panel="Policy")
method_option = partial(Option, panel="Method")
running_option = partial(Option, panel="Running")
file_option = partial(Option, panel="Files and output")


def default_of(path: str | None) -> str | None:
    """The default at a setting's path in words; None if there is nothing to show."""
    from agentcli.records.settings import Settings

    value: Any = Settings() if path else None
    for key in path.split(".") if path else ():
        value = value.get(key) if isinstance(value, dict) else getattr(value, key, None)
    return in_words(value)


def in_words(value: Any) -> str | None:
    """A setting's value as it would be typed; None if it is None or empty."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return None if value in (None, "", [], {}) else str(value)


@dataclasses.dataclass(frozen=True)
class Command:
    """One subcommand."""

    name: str
    body: Callable[[Any], None]
    """The function to run; its docstring is the command's help."""
    options: tuple[Option, ...]
    """All options, including positional arguments in their order."""
    example: str
    inherits: bool = False
    """Without --preset, the lowest layer is the settings recorded in RUN (or
    runs/latest).
    """
    maker: str = "rollout"
    """The command that creates the RUN it needs."""
    fresh: bool = False
    """It starts a new run, and inherits only if no --preset, -c or --model is given.

    With --resume -o DIR it inherits from DIR: runs/latest may be another run by now.
    """
    of_methods: Callable[[str | None], tuple[Option, ...]] = lambda _: ()
    """Creates further options from the methods' settings, which imports the methods.

    Those of the method that it gets are shown.
    """

    def options_with(self, method: str | None = None) -> tuple[Option, ...]:
        """All options, also the methods'; with a method those are shown that help hides.

        Raises UsageError for a method's setting that is called as another option.
        """
        options = self.options
        if method is not None:
            options = tuple(
                dataclasses.replace(option, hidden=False) for option in options
            )
        of_methods = self.of_methods(method)
        taken = {option.name for option in options}
        for option in of_methods:
            if option.name in taken:
                # A hidden one is not of the method that was typed.
                owner = f"--method {method}" if not option.hidden else option.path
                raise UsageError(
                    f"{owner}: its setting `{option.name}` is called as the option "
                    f"{option.shown} of {self.name}; rename the setting"
                )
        return (*options, *of_methods)

    @property
    def arguments(self) -> tuple[Option, ...]:
        """The positional arguments."""
        return tuple(option for option in self.options if option.positional)
