"""What all subcommands share: from typed options to settings, a RUN and an output
folder, and from a result to the terminal.

A subcommand is a Command: a body, the options that take effect there, and an example.
Its Typer signature is made from these, so that the vocabulary stands in one place
(options.py). A body gets a Call and calls one stage. Heavy modules are imported inside
functions: `agentcli --help` needs none of them.
"""

import dataclasses
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentcli.cli.completion import ASKED, completer
from agentcli.cli.effects import refuse_without_effect
from agentcli.cli.errors import one_line_errors
from agentcli.cli.options import Option, given, refuse_empty, refuse_swallowed
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from agentcli.evaluation.record import EvaluationSummary
    from agentcli.records.settings import Settings
    from agentcli.records.types import StageRecord
    from agentcli.reports.progress import TerminalProgress
    from agentcli.stages.session import Invocation, PlanT, Session


@dataclasses.dataclass(frozen=True)
class Command:
    """One subcommand.

    `arguments` are its positional arguments; `of_methods` makes options from the
    methods' settings. `inherits`: without `--preset`, settings recorded in RUN (or
    runs/latest) are the lowest layer; `fresh` commands start a new run, and only
    inherit when nothing else names a model or settings. When one goes on with a run
    (--resume -o DIR), it takes from there what it would inherit: runs/latest may be
    another by now.
    """

    name: str
    body: "Callable[[Call], None]"
    options: tuple[Option, ...]
    example: str
    arguments: tuple[Option, ...] = ()
    inherits: bool = False
    fresh: bool = False
    of_methods: Callable[[], tuple[Option, ...]] = tuple

    @property
    def every_option(self) -> tuple[Option, ...]:
        """All options. Imports the methods where some are made from their settings."""
        return (*self.options, *self.of_methods())

    @property
    def vocabulary(self) -> tuple[Option, ...]:
        """Options and positional arguments."""
        return (*self.every_option, *self.arguments)

    def register(self, app: typer.Typer, *, whole: bool = True) -> None:
        """Add it to a Typer app; without its options unless `whole`, for a list of
        commands.
        """
        callback = self._callback() if whole else _nothing
        app.command(
            self.name, help=self.body.__doc__, epilog=f"Example: {self.example}"
        )(callback)

    def _callback(self) -> Callable[..., None]:
        def callback(**values: Any) -> None:
            call = Call(self, values)
            refuse_empty(call.command)
            refuse_swallowed(self.every_option, values)
            with one_line_errors(call.how_to_go_on), call:
                self.body(call)

        callback.__signature__ = inspect.Signature(list(self._parameters()))  # type: ignore[attr-defined]
        return callback

    def _parameters(self) -> list[inspect.Parameter]:
        parameters = []
        for argument in self.arguments:
            info = typer.Argument(
                metavar=argument.metavar,
                help=argument.help,
                autocompletion=_completion(argument),
            )
            parameters.append(
                _parameter(argument.name, argument.kind | None, None, info)
            )
        for option in self.every_option:
            detail = typer.Option(
                *option.declarations,
                help=option.help,
                metavar=option.metavar,
                rich_help_panel=option.panel,
                autocompletion=_completion(option),
            )
            switch = option.kind is bool and option.path is None
            parameters.append(
                _parameter(
                    option.name,
                    bool if switch else option.kind | None,
                    False if switch else None,
                    detail,
                )
            )
        return parameters


def _nothing() -> None:
    """Stands for a command that was not typed."""


def _parameter(name: str, kind: Any, default: Any, info: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, info],
    )


def _completion(option: Option) -> Callable[[typer.Context, str], list[str]] | None:
    return completer(option.values) if option.values and ASKED else None


class Call:
    """One invocation of a subcommand: what was typed, and what follows from it,
    computed when first asked for.
    """

    def __init__(self, command: Command, values: dict[str, Any]) -> None:
        self.stage = command
        self.values = values
        self.command = ["agentcli", *sys.argv[1:]]
        self.dry = bool(values.get("dry_run"))
        self._out: Path | None = None

    def __enter__(self) -> "Call":
        return self

    def __exit__(self, *failure: object) -> None:
        """End a bar that an error or Ctrl-C left on the terminal."""
        self.progress.stop()

    @cached_property
    def progress(self) -> "TerminalProgress":
        """Bar and notes on stderr."""
        from agentcli.reports.progress import TerminalProgress

        return TerminalProgress(
            quiet=self.values.get("quiet", False), json=self.values.get("json", False)
        )

    @cached_property
    def source(self) -> Path | None:
        """The run that settings and model may come from: RUN, else runs/latest, else
        none.
        """
        from agentcli.stages.resolve import RUNS, find_run

        named = self.values.get("run")
        if named is None and not (RUNS / "latest").is_dir():
            return None
        found = find_run(named)
        if named is None:
            self.progress.note(f"using {found} (runs/latest)")
        return found

    @property
    def run(self) -> Path:
        """RUN, or runs/latest. Raises UsageError when there is neither."""
        from agentcli.stages.resolve import find_run

        return self.source or find_run(None)

    @cached_property
    def settings(self) -> "Settings":
        """All layers resolved. Raises UsageError for options that would have no effect."""
        from agentcli.stages.layers import resolve

        options = self.stage.vocabulary
        flags = given(options, self.values)
        settings = resolve(
            self.values.get("preset"),
            self.values.get("config") or [],
            os.environ,
            self.values.get("set") or [],
            flags,
            base=self._inherited(),
            names={
                option.path: option.names[0] if option.names else str(option.metavar)
                for option in options
                if option.path
            },
            note=self.progress.note,
        )
        if any(option.path == "environment.name" for option in options):
            # Commands that play no world leave open what is the world's to say.
            from agentcli.environments.registry import settle

            settings = settle(settings)
        refuse_without_effect(options, flags, settings)
        return settings

    def _inherited(self) -> dict[str, Any] | None:
        names = ("preset", "config", "model") if self.stage.fresh else ("preset",)
        if not self.stage.inherits or any(self.values.get(name) for name in names):
            return None
        if self._begun is not None:
            self.progress.note(f"settings of {self.values['out']}, as it was begun")
            return self._begun
        if self.source is None:
            return None
        from agentcli.stages.resolve import inherited

        settings = inherited(self.source)
        if settings is not None:
            self.progress.note(
                f"settings of {self.source}; choose others with --preset"
            )
        return settings

    @cached_property
    def _begun(self) -> dict[str, Any] | None:
        """The settings that the run which a `fresh` command goes on with was begun
        with.
        """
        from agentcli.stages.session import begun_with

        if not (
            self.stage.fresh and self.values.get("resume") and self.values.get("out")
        ):
            return None
        return begun_with(self.values["out"], self.stage.name)

    def model(
        self, settings: "Settings | None" = None, *, updated: bool = True
    ) -> str | None:
        """The model in the order --model, preset, RUN/checkpoint (unless not `updated`:
        the one RUN was sampled from), RUN's manifest; None for a policy without one.
        """
        from agentcli.stages.layers import resolve
        from agentcli.stages.resolve import find_model

        settings = settings or self.settings
        if settings.policy.kind != "transformers" or settings.policy.model is not None:
            return find_model(settings, None)
        if self._begun is not None:
            return find_model(resolve(base=self._begun), None)
        return find_model(settings, self.source, updated=updated)

    def new_run(self) -> Path:
        """Where a new run is written: -o, else a free folder under runs/. Raises
        UsageError for --resume without -o.
        """
        from agentcli.stages.resolve import new_run

        if self._out is None:
            if self.values.get("resume") and self.values.get("out") is None:
                raise UsageError("--resume needs -o DIR, the run to go on with")
            self._out = new_run(self.values.get("out"), self.stage.name)
        return self._out

    def write_to(self, out: Path) -> Path:
        """Write to -o if given, else to this existing run. Raises UsageError where no
        directory can be made.
        """
        from agentcli.stages.resolve import usable

        self._out = usable(self.values.get("out") or out)
        return self._out

    @property
    def invocation(self) -> "Invocation":
        """What stages share: the switches for existing output, the command line and the
        progress.
        """
        from agentcli.stages.session import Invocation

        resume, overwrite = (
            bool(self.values.get(name)) for name in ("resume", "overwrite")
        )
        return Invocation(self.command, resume, overwrite, self.progress)

    def carry_out(
        self,
        plan: "PlanT",
        perform: "Callable[[PlanT, Session], StageRecord | EvaluationSummary]",
        settings: "Settings | None" = None,
    ) -> None:
        """Perform a plan and print what came of it; with --dry-run print the plan.

        `settings` are printed in the place of those typed where the inputs decide what
        one comes to. Raises what the stage raises; a dry run raises the same for what
        is refused before the work begins.
        """
        from agentcli.reports.output import print_result
        from agentcli.stages.session import Session, carry_out

        if self.dry:
            Session(plan, self.invocation).preview()
            self.print_plan(plan.inputs, plan.outputs, plan.counts(), settings)
            return
        result = carry_out(plan, perform, self.invocation)
        print_result(
            self.stage.name,
            result,
            plan.run.path,
            json=self.values["json"],
            quiet=self.values["quiet"],
        )

    def print_plan(
        self,
        inputs: Mapping[str, Any],
        outputs: Sequence[Path],
        counts: dict[str, int],
        settings: "Settings | None" = None,
    ) -> None:
        """Resolved settings, inputs, outputs and counts, to stdout."""
        import msgspec

        from agentcli.reports.output import print_data

        plan = {
            "command": self.stage.name,
            "settings": msgspec.to_builtins(settings or self.settings),
            "inputs": {
                name: None if value is None else str(value)
                for name, value in inputs.items()
            },
            "outputs": [str(path) for path in outputs],
            "counts": counts,
        }
        print_data(plan, json=self.values.get("json", False))

    def refuse_existing(self, file: Path | None) -> None:
        """Raises UsageError for a file that exists, without --overwrite."""
        if file is not None and file.exists() and not self.values["overwrite"]:
            raise UsageError(f"{file} exists; replace it with --overwrite")

    def how_to_go_on(self) -> str:
        """What to type after an interruption."""
        if "resume" not in self.values or self._out is None:
            return "type the same command again, with --overwrite where output exists"
        words = [
            word for word in self.command if word not in ("--resume", "--overwrite")
        ]
        if self.values.get("out") is None and self._out != self.values.get("run"):
            words += ["-o", str(self._out)]
        return f"go on with: {shlex.join([*words, '--resume'])}"
