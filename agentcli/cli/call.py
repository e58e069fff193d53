"""One call of a subcommand, from typed options to a result on the terminal.

It determines the settings from the options, the RUN and the output folder, and prints.
Heavy modules are imported inside functions: `agentcli --help` needs none of them.
"""

import inspect
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentcli.cli.command import Command, Option
from agentcli.cli.errors import one_line_errors
from agentcli.cli.typed import (
    refuse_empty,
    refuse_out_of_range,
    refuse_swallowed,
    typed_settings,
    value_after,
)
from agentcli.environments.making import BAR
from agentcli.errors import UsageError
from agentcli.records.processes import rank
from agentcli.records.regular import is_there

if TYPE_CHECKING:
    from agentcli.analysis.estimate import Expected
    from agentcli.records.settings import Settings
    from agentcli.reports.progress import TerminalProgress
    from agentcli.stages.session import Invocation, Perform, PlanT


class Places:
    """The RUN, the model and the output folder of one command.

    `values` are those of its options, and `note` announces what is taken unasked.
    """

    def __init__(
        self, command: Command, values: Mapping[str, Any], note: Callable[[str], None]
    ) -> None:
        self.command = command
        self.values = values
        self._note = note
        self._out: Path | None = None
        self._named_models: set[str] = set()

    @cached_property
    def source(self) -> Path | None:
        """The run that settings and model may be taken from: RUN, else runs/latest."""
        from agentcli.stages.resolve import RUNS, find_run

        typed = self.values.get("run")
        if typed is None and not (RUNS / "latest").is_dir():
            return None
        run = find_run(typed, self.command.maker)
        if typed is None:
            self._note(f"using {run} (runs/latest)")
        return run

    @property
    def run(self) -> Path:
        """RUN, or runs/latest. Raises UsageError if there is neither."""
        from agentcli.stages.resolve import find_run

        return self.source or find_run(None, self.command.maker)

    def inherited(self) -> dict[str, Any] | None:
        """The settings of the run that this command continues, if it continues one."""
        if not self.command.inherits:
            return None
        instead = ("preset", "config", "model") if self.command.fresh else ("preset",)
        if any(self.values.get(name) for name in instead):
            return None
        if self._begun is not None:
            self._note(f"settings of {self.values['out']}, as it was begun")
            return self._begun
        if self.source is None:
            return None
        from agentcli.stages.resolve import inherited, inherited_by_new_run

        take = inherited_by_new_run if self.command.fresh else inherited
        settings = take(self.source)
        # The output is another folder than a run that was found by default.
        elsewhere = self.values.get("run") is None and self.values.get("out")
        if settings is not None and elsewhere:
            # How another run was evaluated should not decide how this one is evaluated.
            settings.pop("evaluation", None)
        if settings is not None and self._names_another_world(settings):
            # Prompts and options belong to the old world.
            settings = {"policy": settings["policy"]} if "policy" in settings else {}
        if settings is not None:
            part = "world and policy" if self.command.fresh else "settings"
            self._note(f"{part} of {self.source}; choose others with --preset")
        return settings

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

    def model(self, settings: "Settings", *, updated: bool = True) -> str | None:
        """The model: --model, the preset's, RUN/checkpoint, or that of RUN's manifest.

        A model that was not typed is announced on the terminal. Without `updated`, it
        is the model that RUN was sampled from and not RUN/checkpoint. None for a policy
        without a model.
        """
        model = self._model(settings, updated)
        is_typed = self.values.get("model") is not None
        if model is not None and not is_typed and model not in self._named_models:
            self._named_models.add(model)
            self._note(f"model {model}; choose another with --model")
        return model

    def _model(self, settings: "Settings", updated: bool) -> str | None:
        from agentcli.policies.registry import LOADING
        from agentcli.stages.layers import resolve
        from agentcli.stages.resolve import find_model

        # If the settings are sufficient, runs/latest is neither looked up nor
        # announced.
        if settings.policy.kind not in LOADING or settings.policy.model is not None:
            return find_model(settings, None)
        if self._begun is not None:
            # A resumed run keeps its model, whatever runs/latest is by then.
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

    def how_to_go_on(self, words: Sequence[str]) -> str:
        """The command to type after one of these words was interrupted."""
        if "resume" not in self.values or self._out is None:
            return "type the same command again, with --overwrite where output exists"
        # --overwrite would delete what is to be continued, and excludes --resume.
        switches = ("--resume", "--overwrite")
        words = [word for word in words if word not in switches]
        # A folder that was chosen automatically has to be named now.
        if self.values.get("out") is None and self._out != self.values.get("run"):
            words += ["-o", str(self._out)]
        return f"go on with: {shlex.join([*words, '--resume'])}"


class Call:
    """The typed options and everything derived from them, computed on first use.

    `values` has every option of the command by name; an option that was not typed is
    None, or False if it is a switch.
    """

    def __init__(
        self, command: Command, options: Sequence[Option], values: dict[str, Any]
    ) -> None:
        self.command = command
        self.options = options
        self.values = values
        self.words = ["agentcli", *sys.argv[1:]]
        self.dry = bool(values.get("dry_run"))
        self.place = Places(command, values, self.note)
        self.layers: list[str] = []
        """Where the settings come from, once they are known."""

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

    def note(self, text: str) -> None:
        """Prints a line on stderr, if there is one to print."""
        if text:
            self.progress.note(text)

    @cached_property
    def settings(self) -> "Settings":
        """The settings from all layers. Raises UsageError if an option does nothing."""
        from agentcli.stages.layers import PROJECT, gather, merge

        typed = typed_settings(self.options, self.values)
        flags = {option.path: option.shown for option in self.options if option.path}
        project = PROJECT if is_there(PROJECT) else None
        if project is not None:
            self.note(f"settings of {project} in this folder, below all others")
        layers = gather(
            self.values.get("preset"),
            self.values.get("config") or [],
            os.environ,
            self.values.get("set") or [],
            typed,
            base=self.place.inherited(),
            names=flags,
            project=project,
        )
        self.layers = [layer.place for layer in layers]
        settings = merge(layers)
        # Commands that play no world do not resolve what depends on the world.
        if "environment.name" in flags:
            from agentcli.environments.registry import settle

            settings = settle(settings)
        refuse_without_effect(self.options, typed, settings)
        return settings

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
            # Every process refuses what is wrong; one alone prints.
            Session(plan, self.invocation).preview()
            if rank() > 0:
                return
            from agentcli.analysis.estimate import expected_of

            counts = plan.counts()
            expected = expected_of(plan)
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
        return Invocation(self.words, resume, overwrite, self.progress, self.layers)

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
        from agentcli.reports.output import print_preview

        json = self.values.get("json", False)
        settings = settings or self.settings
        shown = msgspec.to_builtins(settings) if json else changed_settings(settings)

        print_preview(
            self.command.name,
            shown,
            inputs,
            map(str, outputs),
            counts,
            expected,
            json=json,
        )

    def announce(self, address: str, facts: Mapping[str, Any]) -> None:
        """Prints at once what a server that is ready says; who reads waits for it."""
        from agentcli.reports.output import print_json

        self.progress.stop()
        if self.values["json"]:
            print_json(facts)
        else:
            print(address, flush=True)

    def is_typed(self, name: str) -> bool:
        """Whether an option was typed; 0 counts as a value."""
        value = self.values[name]
        return value is not None and value is not False

    def refuse_typed(self, options: Iterable[Option], reason: str) -> None:
        """Raises UsageError if one of the options was typed, which has no effect."""
        for option in options:
            if self.is_typed(option.name):
                raise UsageError(f"{option.shown} has no effect {reason}")

    def refuse_existing(self, file: Path | None) -> None:
        """Raises UsageError if the file exists and --overwrite is not given.

        Also refuses a name that a terminal would not show.
        """
        from agentcli.stages.resolve import refuse_hidden

        if file is not None:
            refuse_hidden(file)
        if file is not None and is_there(file) and not self.values["overwrite"]:
            raise UsageError(f"{file} exists; replace it with --overwrite")


def register(
    command: Command, app: typer.Typer, words: Sequence[str] | None = None
) -> None:
    """Adds a command to a Typer app, without options if it is not among the words.

    `words` are those typed; None if they are not known.
    """
    is_typed = words is None or command.name in words
    add = app.command(
        command.name, help=command.body.__doc__, epilog=f"Example: {command.example}"
    )
    # A command that was not typed needs no more than its name.
    add(_callback(command, words or ()) if is_typed else lambda: None)


def _callback(command: Command, words: Sequence[str]) -> Callable[..., None]:
    # This imports the method named, which may be a file of the user's.
    with one_line_errors(lambda: "type the same command again"):
        options = command.options_with(value_after("--method", words))

    def callback(**values: Any) -> None:
        call = Call(command, options, values)
        refuse_empty(call.words)
        refuse_swallowed(options, values)
        with one_line_errors(lambda: call.place.how_to_go_on(call.words)), call:
            refuse_out_of_range(options, values)
            command.body(call)

    # Typer reads the options from the signature.
    parameters = [option.parameter() for option in options]
    callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return callback


LOADED_HERE = {"policy.adapter", "policy.device", "policy.dtype"}
"""The settings used to load a model in this process."""
MODEL_ONLY = {
    *LOADED_HERE,
    "policy.model",
    "policy.temperature",
    "evaluation.temperature",
}
"""The settings that a policy without a model ignores."""


def refuse_without_effect(
    options: Iterable[Option], typed: Mapping[str, Any], settings: "Settings"
) -> None:
    """Raises UsageError naming the first typed option that changes nothing, and why.

    `typed` maps setting paths to values.
    """
    # A positional argument is the object of the command: it always takes effect.
    flags = {
        option.path: option.shown
        for option in options
        if option.path and not option.positional
    }
    policy = settings.policy.kind
    if "demos.policy" in flags:
        policy = settings.demos.policy
    for path, flag in flags.items():
        if path not in typed:
            continue
        reason = _reason(path, settings, policy)
        if reason:
            raise UsageError(f"{flag} has no effect {reason}")


def _reason(path: str, settings: "Settings", policy: str) -> str | None:
    section, _, name = path.partition(".")
    if section == "policy" or path == "evaluation.temperature":
        return _reason_of_policy(path, policy)
    if path == "rollout.distinct" and settings.rollout.distinct:
        return _reason_of_distinct(settings, policy)
    if path == "rollout.minimum_leaves" and settings.rollout.deadline_seconds is None:
        return "without a deadline; add --deadline SECONDS or leave it out"
    if path == "prompt.history":
        return _reason_of_history(settings)
    if section == "train" and name in _unread(settings):
        return (
            f"with train.objective {settings.train.objective}, which does not read "
            "it; leave it out"
        )
    if path == "cluster.workers" and settings.cluster.is_local:
        return "in this process; add --on ray or leave it out"
    panel = settings.environment.panel
    if path in ("environment.split", "evaluation.split") and panel is not None:
        return f"with the panel file {panel}; leave one of the two out"
    return None


def _reason_of_policy(path: str, policy: str) -> str | None:
    from agentcli.policies.registry import MODEL_FREE

    if path in MODEL_ONLY and policy in MODEL_FREE:
        return f"with --policy {policy}, which asks no model; leave one of the two out"
    if path in LOADED_HERE and policy == "openai":
        return (
            "with --policy openai, where the server loads the model; leave one of "
            "the two out"
        )
    if path == "policy.device" and policy == "vllm":
        return (
            "with --policy vllm, which takes the GPUs that are visible; set "
            "CUDA_VISIBLE_DEVICES instead"
        )
    if path == "policy.endpoint.base_url" and policy != "openai":
        return f"with --policy {policy}; add --policy openai or leave it out"
    return None


def _reason_of_distinct(settings: "Settings", policy: str) -> str | None:
    """Why resampling is impossible or would give another response; None if it works."""
    from agentcli.policies.registry import MODEL_FREE

    if settings.rollout.leaves == 1:
        return (
            "with rollout.leaves 1, where nothing has a sibling; raise --leaves or "
            "leave it out"
        )
    if settings.policy.temperature == 0 and policy not in MODEL_FREE:
        return (
            "with policy.temperature 0, where every draw is the same; raise "
            "--temperature or leave it out"
        )
    return None


def _reason_of_history(settings: "Settings") -> str | None:
    """Why the length of the history does not change the messages; None if it does."""
    from agentcli.environments.registry import make_world
    from agentcli.prompts.registry import dialect_class

    style = settings.prompt.style or make_world(settings.environment).card.dialect
    fixed = dialect_class(style, settings.rollout.numbered).fixed
    if not fixed:
        return None
    method = settings.rollout.method
    return (
        f"with prompt.style {style} and rollout.method {method}: {fixed}; leave it out"
    )


def _unread(settings: "Settings") -> tuple[str, ...]:
    """The settings of `train` that its objective ignores."""
    from agentcli.training.objectives import make_objective

    return make_objective(settings.train.objective).unread
