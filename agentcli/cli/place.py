"""Where one command reads and writes: the RUN, the model and the output folder.

They are found from what was typed, when they are first needed; what was not typed is
announced. Heavy modules are imported inside functions.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.cli.command import Command
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from agentcli.records.settings import Settings


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
        if settings is not None and self._begins_elsewhere():
            # How another run was evaluated should not decide how this one is evaluated.
            settings.pop("evaluation", None)
        if settings is not None and self._names_another_world(settings):
            # Prompts and options belong to the old world.
            settings = {"policy": settings["policy"]} if "policy" in settings else {}
        if settings is not None:
            part = "world and policy" if self.command.fresh else "settings"
            self._note(f"{part} of {self.source}; choose others with --preset")
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
        switches = ("--resume", "--overwrite")
        words = [word for word in words if word not in switches]
        # A folder that was chosen automatically has to be named now.
        if self.values.get("out") is None and self._out != self.values.get("run"):
            words += ["-o", str(self._out)]
        return f"go on with: {shlex.join([*words, '--resume'])}"
