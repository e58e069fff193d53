"""The definition of a subcommand: a body, the options that take effect, an example.

All options are defined in one place (options.py). The body gets a Call (call.py), which
makes a Typer command of this, and calls one stage.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from agentcli.cli.option import Option


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
        """All options, also the methods'; with a method those are shown that help hides."""
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
