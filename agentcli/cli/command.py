"""What all subcommands share: from typed options to settings, a RUN and an output folder, and from a result to the terminal.

A subcommand is a Command: a body, the options that take effect there, and an example. Its Typer signature is made from
these, so that the vocabulary stands in one place (options.py). A body gets a Call and calls one stage. Heavy modules
are imported inside functions: `agentcli --help` needs none of them.
"""

import dataclasses
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentcli.cli.completion import ASKED, completer
from agentcli.cli.effects import refuse_without_effect
from agentcli.cli.errors import one_line_errors
from agentcli.cli.options import TRACKER, Option, given, refuse_empty, refuse_swallowed
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from agentcli.records.settings import Settings
    from agentcli.reports.progress import Progress
    from agentcli.stages.session import Invocation


@dataclasses.dataclass(frozen=True)
class Command:
    """One subcommand.

    `arguments` are its positional arguments. `inherits`: without --preset, settings recorded in RUN (or runs/latest)
    are the lowest layer; `fresh` commands start a new run, and only inherit when nothing else names a model or settings. When
    one goes on with a run (--resume -o DIR), it takes from there what it would inherit: runs/latest may be another by now.
    """

    name: str
    body: "Callable[[Call], None]"
    options: tuple[Option, ...]
    example: str
    arguments: tuple[Option, ...] = ()
    inherits: bool = False
    fresh: bool = False

    @property
    def vocabulary(self) -> tuple[Option, ...]:
        """Options and positional arguments."""
        return (*self.options, *self.arguments)

    def register(self, app: typer.Typer) -> None:
        """Add it to a Typer app."""
        app.command(self.name, help=self.body.__doc__, epilog=f"Example: {self.example}")(self._callback())

    def _callback(self) -> Callable[..., None]:
        def callback(**values: Any) -> None:
            call = Call(self, values)
            refuse_empty(call.command)
            refuse_swallowed(self.options, values)
            with one_line_errors(call.how_to_go_on), call:
                call.perform()

        callback.__signature__ = inspect.Signature(list(self._parameters()))  # type: ignore[attr-defined]
        return callback

    def _parameters(self) -> list[inspect.Parameter]:
        parameters = []
        for argument in self.arguments:
            info = typer.Argument(metavar=argument.metavar, help=argument.help, autocompletion=_completion(argument))
            parameters.append(_parameter(argument.name, argument.kind | None, None, info))
        for option in self.options:
            detail = typer.Option(
                *option.declarations,
                help=option.help,
                metavar=option.metavar,
                rich_help_panel=option.panel,
                autocompletion=_completion(option),
            )
            switch = option.kind is bool and option.path is None
            parameters.append(
                _parameter(option.name, bool if switch else option.kind | None, False if switch else None, detail)
            )
        return parameters


def _parameter(name: str, kind: Any, default: Any, info: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _completion(option: Option) -> Callable[[typer.Context, str], list[str]] | None:
    return completer(option.values) if option.values and ASKED else None


class Call:
    """One invocation of a subcommand: what was typed, and what follows from it, computed when first asked for."""

    def __init__(self, command: Command, values: dict[str, Any]) -> None:
        self.stage = command
        self.values = values
        self.command = ["agentcli", *sys.argv[1:]]
        self.dry = bool(values.get("dry_run"))
        self._out: Path | None = None
        self._plan: Callable[[], None]

    def __enter__(self) -> "Call":
        return self

    def __exit__(self, *failure: object) -> None:
        """End a bar that an error or Ctrl-C left on the terminal."""
        self.progress.stop()

    def perform(self) -> None:
        """The body. A dry run with --resume rehearses the stage, which compares settings and inputs with those that it was begun
        with and stops where it would write; then the plan is shown."""
        if not self.dry or not self.values.get("resume"):
            self.stage.body(self)
            return
        from agentcli.stages.session import Rehearsed

        try:
            self.stage.body(self)
        except Rehearsed:
            self._plan()

    @cached_property
    def progress(self) -> "Progress":
        """Bar and notes on stderr."""
        from agentcli.reports.progress import Progress

        return Progress(quiet=self.values.get("quiet", False), json=self.values.get("json", False))

    @cached_property
    def source(self) -> Path | None:
        """The run that settings and model may come from: RUN, else runs/latest, else none."""
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
            self.progress.note(f"settings of {self.source}; choose others with --preset")
        return settings

    @cached_property
    def _begun(self) -> dict[str, Any] | None:
        """The settings that the run which a `fresh` command goes on with was begun with."""
        from agentcli.stages.session import begun_with

        if not (self.stage.fresh and self.values.get("resume") and self.values.get("out")):
            return None
        return begun_with(self.values["out"], self.stage.name)

    def model(self, settings: "Settings | None" = None, *, updated: bool = True) -> str | None:
        """The model in the order --model, preset, RUN/checkpoint (unless not `updated`: the one RUN was sampled from),
        RUN's manifest; None for a policy without one."""
        from agentcli.stages.layers import resolve
        from agentcli.stages.resolve import find_model

        settings = settings or self.settings
        if settings.policy.kind != "transformers" or settings.policy.model is not None:
            return find_model(settings, None)
        if self._begun is not None:
            return find_model(resolve(None, (), {}, (), {}, base=self._begun), None)
        return find_model(settings, self.source, updated=updated)

    def new_run(self) -> Path:
        """Where a new run is written: -o, else a free folder under runs/. Raises UsageError for --resume without -o."""
        from agentcli.stages.resolve import new_run

        if self._out is None:
            if self.values.get("resume") and self.values.get("out") is None:
                raise UsageError("--resume needs -o DIR, the run to go on with")
            self._out = new_run(self.values.get("out"), self.stage.name)
        return self._out

    def write_to(self, out: Path) -> Path:
        """Write to -o if given, else to this existing run. Raises UsageError where no directory can be made."""
        from agentcli.stages.resolve import usable

        self._out = usable(self.values.get("out") or out)
        return self._out

    @property
    def invocation(self) -> "Invocation":
        """What stages share: the switches for existing output, the command line and the progress."""
        from agentcli.stages.session import Invocation

        resume, overwrite = (bool(self.values.get(name)) for name in ("resume", "overwrite"))
        return Invocation(self.command, resume, overwrite, self.progress, rehearse=self.dry)

    def refuse_existing(self, outputs: Sequence[Path]) -> None:
        """Raises UsageError for output that exists where no flag says what to do with it, as the stages do."""
        resume, overwrite = (bool(self.values.get(name)) for name in ("resume", "overwrite"))
        if resume and overwrite:
            raise UsageError("--resume and --overwrite exclude each other; give one of them")
        existing = next((path for path in outputs if path.exists()), None)
        if existing is not None and not resume and not overwrite:
            go_on = "go on with --resume where it was interrupted, or " if "resume" in self.values else ""
            raise UsageError(f"{existing} exists; {go_on}replace it with --overwrite")

    def preview(
        self,
        inputs: dict[str, Any],
        counts: Callable[[], dict[str, int]],
        outputs: Sequence[Path] = (),
        resolved: "Callable[[], Settings] | None" = None,
    ) -> bool:
        """With --dry-run, print resolved settings, inputs, outputs and counts to stdout and return True; with --resume too, do so
        after the stage has been rehearsed, for which the body must go on to it. `resolved` gives the settings where the inputs
        decide what one that is not set comes to.

        Raises what the command itself would raise at once: for output that exists, and for inputs that `counts` checks.
        """
        if not self.dry:
            return False
        self._plan = partial(self._show_plan, inputs, counts, outputs, resolved or (lambda: self.settings))
        if self.values.get("resume"):
            return False
        self._plan()
        return True

    def _show_plan(
        self,
        inputs: dict[str, Any],
        counts: Callable[[], dict[str, int]],
        outputs: Sequence[Path],
        resolved: "Callable[[], Settings]",
    ) -> None:
        import msgspec

        from agentcli.cli.dry_run import check_model, check_tracking
        from agentcli.reports.output import print_data

        self.refuse_existing(outputs)
        check_model(inputs.get("model"))
        if TRACKER in self.stage.options and not self.values.get("resume"):
            check_tracking(self.settings, self._out, bool(self.values.get("overwrite")))
        plan = {
            "command": self.stage.name,
            "settings": msgspec.to_builtins(resolved()),
            "inputs": {name: None if value is None else str(value) for name, value in inputs.items()},
            "outputs": [str(path) for path in outputs],
            "counts": counts(),
        }
        print_data(plan, json=self.values.get("json", False))

    def finish(self, result: Any, out: Path) -> None:
        """Print what a stage did: JSON or the run's path on stdout, a table on stderr."""
        from agentcli.reports.output import print_result

        print_result(self.stage.name, result, out, json=self.values["json"], quiet=self.values["quiet"])

    def how_to_go_on(self) -> str:
        """What to type after an interruption."""
        if "resume" not in self.values or self._out is None:
            return "type the same command again, with --overwrite where output exists"
        words = [word for word in self.command if word not in ("--resume", "--overwrite")]
        if self.values.get("out") is None and self._out != self.values.get("run"):
            words += ["-o", str(self._out)]
        return f"go on with: {shlex.join([*words, '--resume'])}"
