"""One call of a subcommand, from typed options to a result on the terminal.

It determines the settings, the RUN and the output folder from the options. Heavy
modules are imported inside functions: `agentcli --help` needs none of them.
"""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.cli.effects import refuse_without_effect
from agentcli.cli.option import Option
from agentcli.cli.typed import typed_settings
from agentcli.environments.making import BAR
from agentcli.errors import UsageError
from agentcli.records.processes import rank
from agentcli.records.regular import is_there

if TYPE_CHECKING:
    from agentcli.cli.command import Command
    from agentcli.records.settings import Settings
    from agentcli.reports.progress import TerminalProgress
    from agentcli.stages.estimate import Expected
    from agentcli.stages.session import Invocation, Perform, PlanT


class Call:
    """The typed options and everything derived from them, computed on first use.

    `values` has every option of the command by name; an option that was not typed is
    None, or False if it is a switch.
    """

    def __init__(
        self, command: "Command", options: Sequence[Option], values: dict[str, Any]
    ) -> None:
        self.command = command
        self.options = options
        self.values = values
        self.words = ["agentcli", *sys.argv[1:]]
        self.dry = bool(values.get("dry_run"))
        self._out: Path | None = None
        self._named_models: set[str] = set()

    def __enter__(self) -> "Call":
        self._bar_before = BAR.set(self._bar)
        return self

    def __exit__(self, *failure: object) -> None:
        """Closes a progress bar that an error or Ctrl-C left on the terminal."""
        BAR.reset(self._bar_before)
        self.progress.stop()

    @contextmanager
    def _bar(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """A progress bar for what a world builds."""
        from agentcli.reports.standing import Standing

        shown = 0

        def reach(done: int) -> None:
            nonlocal shown
            if done > shown:
                self.progress.advance(done - shown)
                shown = done

        self.progress.start(Standing(title, total))
        yield reach
        self.progress.stop()

    @cached_property
    def progress(self) -> "TerminalProgress":
        """Bar and notes on stderr; with several processes, only the first has them."""
        from agentcli.reports.progress import TerminalProgress

        quiet = self.values.get("quiet", False) or rank() > 0
        return TerminalProgress(quiet=quiet, json=self.values.get("json", False))

    @cached_property
    def source(self) -> Path | None:
        """The run that settings and model may be taken from: RUN, else runs/latest."""
        from agentcli.stages.resolve import RUNS, find_run

        typed = self.values.get("run")
        if typed is None and not (RUNS / "latest").is_dir():
            return None
        run = find_run(typed, self.command.maker)
        if typed is None:
            self.progress.note(f"using {run} (runs/latest)")
        return run

    @property
    def run(self) -> Path:
        """RUN, or runs/latest. Raises UsageError if there is neither."""
        from agentcli.stages.resolve import find_run

        return self.source or find_run(None, self.command.maker)

    @cached_property
    def settings(self) -> "Settings":
        """The settings from all layers. Raises UsageError if an option does nothing."""
        from agentcli.stages.layers import resolve

        typed = typed_settings(self.options, self.values)
        flags = {option.path: option.shown for option in self.options if option.path}
        settings = resolve(
            self.values.get("preset"),
            self.values.get("config") or [],
            os.environ,
            self.values.get("set") or [],
            typed,
            base=self._inherited(),
            names=flags,
        )
        # Commands that play no world do not resolve what depends on the world.
        if "environment.name" in flags:
            from agentcli.environments.registry import settle

            settings = settle(settings)
        refuse_without_effect(self.options, typed, settings)
        return settings

    def _inherited(self) -> dict[str, Any] | None:
        """The settings of the run that this command continues, if it continues one."""
        if not self.command.inherits:
            return None
        instead = ("preset", "config", "model") if self.command.fresh else ("preset",)
        if any(self.values.get(name) for name in instead):
            return None
        if self._begun is not None:
            self.progress.note(f"settings of {self.values['out']}, as it was begun")
            return self._begun
        if self.source is None:
            return None
        from agentcli.stages.resolve import inherited, inherited_by_new_run

        take = inherited_by_new_run if self.command.fresh else inherited
        settings = take(self.source)
        if settings is not None and self._begins_elsewhere():
            # How another run was evaluated should not decide how this one is evaluated.
            settings.pop("evaluation", None)
        if settings is not None and self._names_another_world(settings):
            # Prompts and options belong to the old world.
            settings = {"policy": settings["policy"]} if "policy" in settings else {}
        if settings is not None:
            part = "world and policy" if self.command.fresh else "settings"
            self.progress.note(f"{part} of {self.source}; choose others with --preset")
        return settings

    def _begins_elsewhere(self) -> bool:
        """Whether the output is another folder than a run that was found by default."""
        return self.values.get("run") is None and self.values.get("out") is not None

    def _names_another_world(self, settings: dict[str, Any]) -> bool:
        """Whether --env is another world than the inherited one."""
        typed = self.values.get("env")
        world = settings.get("environment", {})
        return self.command.fresh and typed is not None and typed != world.get("name")

    @cached_property
    def _begun(self) -> dict[str, Any] | None:
        """The settings with which a run was begun, if --resume continues it."""
        from agentcli.stages.session import begun_with

        out = self.values.get("out")
        if self.command.fresh and self.values.get("resume") and out:
            return begun_with(out, self.command.name)
        return None

    def model(
        self, settings: "Settings | None" = None, *, updated: bool = True
    ) -> str | None:
        """The model: --model, the preset's, RUN/checkpoint, or that of RUN's manifest.

        A model that was not typed is announced on the terminal. Without `updated`, it
        is the model that RUN was sampled from and not RUN/checkpoint. None for a policy
        without a model.
        """
        model = self._model(settings or self.settings, updated)
        if model is not None and self.values.get("model") is None:
            self._name_model(model)
        return model

    def _name_model(self, model: str) -> None:
        if model not in self._named_models:
            self._named_models.add(model)
            self.progress.note(f"model {model}; choose another with --model")

    def _model(self, settings: "Settings", updated: bool) -> str | None:
        from agentcli.policies.registry import LOADING
        from agentcli.stages.layers import resolve
        from agentcli.stages.resolve import find_model

        # If the settings are sufficient, runs/latest is neither looked up nor
        # announced.
        if settings.policy.kind not in LOADING or settings.policy.model is not None:
            return find_model(settings, None)
        if self._begun is not None:
            return find_model(resolve(base=self._begun), None)
        return find_model(settings, self.source, updated=updated)

    def new_run(self) -> Path:
        """The folder for a new run: -o, else an unused name under runs/.

        Raises UsageError for --resume without -o.
        """
        from agentcli.stages.resolve import new_run

        if self._out is None:
            out = self.values.get("out")
            if self.values.get("resume") and out is None:
                raise UsageError("--resume needs -o DIR, the run to go on with")
            self._out = new_run(out, self.command.name)
        return self._out

    def write_to(self, run: Path) -> Path:
        """The output folder of a command on an existing run: -o, else the run itself.

        Raises UsageError if the directory cannot be created.
        """
        from agentcli.stages.resolve import usable

        self._out = usable(self.values.get("out") or run)
        return self._out

    def carry_out(
        self,
        plan: "PlanT",
        perform: "Perform[PlanT]",
        settings: "Settings | None" = None,
    ) -> None:
        """Performs a plan and prints the result; with --dry-run prints the plan.

        `settings`, if given, are shown instead of the typed ones, because inputs decide
        some of them. Raises what the stage raises. A dry run raises the same errors for
        anything that is checked before the work begins.
        """
        from agentcli.reports.output import print_result
        from agentcli.stages.session import Session, carry_out

        if self.dry:
            Session(plan, self.invocation).preview()
            if rank() > 0:
                return
            counts = plan.counts()
            expected = plan.expected()
            self.print_plan(plan.inputs, plan.outputs, counts, settings, expected)
            return
        result = carry_out(plan, perform, self.invocation)
        if rank() > 0:
            return
        print_result(
            self.command.name,
            result,
            plan.run.path,
            json=self.values["json"],
            quiet=self.values["quiet"],
        )

    @property
    def invocation(self) -> "Invocation":
        """The part of the command line that a session needs."""
        from agentcli.stages.session import Invocation

        resume = bool(self.values.get("resume"))
        overwrite = bool(self.values.get("overwrite"))
        return Invocation(self.words, resume, overwrite, self.progress)

    def print_plan(
        self,
        inputs: Mapping[str, Any],
        outputs: Sequence[Path],
        counts: dict[str, int],
        settings: "Settings | None" = None,
        expected: "Expected | None" = None,
    ) -> None:
        """Prints settings, inputs, outputs, counts and the estimated cost of the stage.

        JSON has all settings; text has those that differ from the defaults.
        """
        import msgspec

        from agentcli.exploration.settings import changed_settings
        from agentcli.reports.output import print_data, readable

        json = self.values.get("json", False)
        settings = settings or self.settings
        shown = msgspec.to_builtins(settings) if json else changed_settings(settings)

        input_texts = {
            name: None if value is None else str(value)
            for name, value in inputs.items()
        }
        plan = {
            "command": self.command.name,
            "settings": shown,
            "inputs": input_texts,
            "outputs": [str(path) for path in outputs],
            "counts": counts,
        }
        if expected is not None:
            values = msgspec.to_builtins(expected)
            plan["expected"] = values if json else readable(values)
        print_data(plan, json=json)

    def refuse_existing(self, file: Path | None) -> None:
        """Raises UsageError if the file exists and --overwrite is not given.

        Also refuses a name that a terminal would not show.
        """
        from agentcli.stages.resolve import refuse_hidden

        if file is not None:
            refuse_hidden(file)
        if file is not None and is_there(file) and not self.values["overwrite"]:
            raise UsageError(f"{file} exists; replace it with --overwrite")

    def how_to_go_on(self) -> str:
        """The command to type after an interruption."""
        if "resume" not in self.values or self._out is None:
            return "type the same command again, with --overwrite where output exists"
        switches = ("--resume", "--overwrite")
        words = [word for word in self.words if word not in switches]
        # A folder that was chosen automatically has to be named now.
        if self.values.get("out") is None and self._out != self.values.get("run"):
            words += ["-o", str(self._out)]
        return f"go on with: {shlex.join([*words, '--resume'])}"
