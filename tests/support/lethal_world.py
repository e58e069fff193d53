"""The toy world with a task that kills the process it is played for, or that one's parent, when it starts.

Use it as `EnvironmentSettings(name="lethal_world:LethalWorld", options={...})`. Only a worker of `--on ray` may play it: there the
process is the worker and its parent is the raylet, the node.
"""

import os
import signal
from pathlib import Path
from typing import Literal

import msgspec
from agentcli.environments.protocol import Start
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from toy_world import ToyEngine, ToyOptions, ToyWorld


class LethalOptions(ToyOptions, kw_only=True):
    """environment.options of the lethal world."""

    victim: Literal["worker", "node"] = "worker"
    poison: str
    """The task that kills."""
    doses: int | None = None
    """How often; None: whenever it starts."""
    graves: str
    """An empty folder, where every killing leaves a file."""


class LethalWorld(ToyWorld):
    """Its engines look for the poison when they start a task."""

    options: LethalOptions

    def __init__(self, settings: EnvironmentSettings) -> None:
        super().__init__(msgspec.structs.replace(settings, options={}))
        self.options = msgspec.convert(settings.options, LethalOptions)

    def engine(self) -> "LethalEngine":
        return LethalEngine(self)


class LethalEngine(ToyEngine):
    """Kills."""

    world: LethalWorld

    def start(self, task: Task) -> Start:
        options = self.world.options
        graves = Path(options.graves)
        dead = len(list(graves.iterdir()))
        if task.id == options.poison and (options.doses is None or dead < options.doses):
            (graves / str(dead)).touch()
            worker = os.getppid()
            os.kill(worker if options.victim == "worker" else parent_of(worker), signal.SIGKILL)
        return super().start(task)


def parent_of(process: int) -> int:
    """The id of a process's parent."""
    after_name = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    return int(after_name.split()[1])
