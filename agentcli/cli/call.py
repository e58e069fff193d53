"""One call of a subcommand, from typed options to a result on the terminal.

It determines the settings from the options (place.py: the RUN and the output folder),
and prints. Heavy modules are imported inside functions: `agentcli --help` needs none of them.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentcli.cli.command import Command
from agentcli.cli.errors import one_line_errors
from agentcli.cli.option import Option
from agentcli.cli.place import Places
from agentcli.cli.typed import (
    refuse_empty,
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
    add(_callback(command, words or ()) if is_typed else _nothing)


def _callback(command: Command, words: Sequence[str]) -> Callable[..., None]:
    # This imports the method named, which may be a file of the user's.
    with one_line_errors(lambda: "type the same command again"):
        options = command.options_with(value_after("--method", words))

    def callback(**values: Any) -> None:
        call = Call(command, options, values)
        refuse_empty(call.words)
        refuse_swallowed(options, values)
        with one_line_errors(lambda: call.place.how_to_go_on(call.words)), call:
            command.body(call)

    # Typer reads the options from the signature.
    parameters = [option.parameter() for option in options]
    callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return callback


def _nothing() -> None:
    """A placeholder for a command that was not typed."""


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
