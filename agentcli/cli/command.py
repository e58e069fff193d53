"""The definition of a subcommand: a body, the options that take effect, an example.

Its Typer signature is generated from these, so that all options are defined in one
place (options.py). The body gets a Call (call.py) and calls one stage.
"""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import typer

from agentcli.cli.call import Call
from agentcli.cli.errors import one_line_errors
from agentcli.cli.option import Option
from agentcli.cli.typed import refuse_empty, refuse_swallowed, value_after


def no_options(method: str | None) -> tuple[Option, ...]:
    """The options of a command whose options are all its own."""
    return ()


@dataclasses.dataclass(frozen=True)
class Command:
    """One subcommand."""

    name: str
    body: Callable[[Call], None]
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
    of_methods: Callable[[str | None], tuple[Option, ...]] = no_options
    """Creates further options from the methods' settings, which imports the methods.

    Those of the method that it gets are shown.
    """

    @property
    def every_option(self) -> tuple[Option, ...]:
        """All options, including those of the methods."""
        return self.options_with(None)

    def options_with(self, method: str | None) -> tuple[Option, ...]:
        """All options; with a method they are shown that help otherwise leaves out."""
        options = self.options
        if method is not None:
            options = tuple(
                dataclasses.replace(option, hidden=False) for option in options
            )
        return (*options, *self.of_methods(method))

    @property
    def arguments(self) -> tuple[Option, ...]:
        """The positional arguments."""
        return tuple(option for option in self.options if option.positional)

    def register(self, app: typer.Typer, words: Sequence[str] | None = None) -> None:
        """Adds it to a Typer app, without options if it is not among the words typed.

        `words` is None if they are not known.
        """
        is_typed = words is None or self.name in words
        app.command(
            self.name, help=self.body.__doc__, epilog=f"Example: {self.example}"
        )(self._callback(words or ()) if is_typed else _nothing)

    def _callback(self, words: Sequence[str]) -> Callable[..., None]:
        # This imports the method named, which may be a file of the user's.
        with one_line_errors(lambda: "type the same command again"):
            options = self.options_with(value_after("--method", words))

        def callback(**values: Any) -> None:
            call = Call(self, options, values)
            refuse_empty(call.words)
            refuse_swallowed(options, values)
            with one_line_errors(call.how_to_go_on), call:
                self.body(call)

        parameters = [option.parameter() for option in options]
        callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return callback


def _nothing() -> None:
    """A placeholder for a command that was not typed."""
