"""What a subcommand is: a body, the options that take effect there, and an example.

Its Typer signature is made from these, so that the vocabulary stands in one place
(options.py). The body gets a Call (call.py) and calls one stage.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import typer

from agentcli.cli.call import Call
from agentcli.cli.errors import one_line_errors
from agentcli.cli.option import Option
from agentcli.cli.typed import refuse_empty, refuse_swallowed


@dataclasses.dataclass(frozen=True)
class Command:
    """One subcommand."""

    name: str
    body: Callable[[Call], None]
    """Its docstring is the command's help."""
    options: tuple[Option, ...]
    """Positional arguments too, in their order."""
    example: str
    inherits: bool = False
    """Without --preset, the settings recorded in RUN (or runs/latest) are the lowest
    layer.
    """
    maker: str = "rollout"
    """The command that makes a RUN for it."""
    fresh: bool = False
    """It starts a new run, and inherits only when no --preset, -c or --model is given.

    With --resume -o DIR it inherits from DIR: runs/latest may be another by now.
    """
    of_methods: Callable[[], tuple[Option, ...]] = tuple
    """Makes further options from the methods' settings, which imports the methods."""

    @property
    def every_option(self) -> tuple[Option, ...]:
        """All options, those of the methods too."""
        return (*self.options, *self.of_methods())

    @property
    def arguments(self) -> tuple[Option, ...]:
        """The positional arguments."""
        return tuple(option for option in self.options if option.positional)

    def register(self, app: typer.Typer, *, with_options: bool = True) -> None:
        """Adds it to a Typer app; a list of commands does not need its options."""
        app.command(
            self.name, help=self.body.__doc__, epilog=f"Example: {self.example}"
        )(self._callback() if with_options else _nothing)

    def _callback(self) -> Callable[..., None]:
        options = self.every_option

        def callback(**values: Any) -> None:
            call = Call(self, values)
            refuse_empty(call.words)
            refuse_swallowed(options, values)
            with one_line_errors(call.how_to_go_on), call:
                self.body(call)

        parameters = [option.parameter() for option in options]
        callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return callback


def _nothing() -> None:
    """Stands for a command that was not typed."""
