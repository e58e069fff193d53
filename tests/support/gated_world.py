"""The toy world with a gate: one task's engine stops at its start until it is let on, so that a test can strike at a known moment.

GATE names a folder with the FIFOs `reached` and `on`, GATE_TASK the task; without them this is the toy world. Use it as
`EnvironmentSettings(name="gated_world:GatedWorld", ...)`.
"""

import os
from pathlib import Path

from agentcli.environments.protocol import Start
from agentcli.records.types import Task
from toy_world import ToyEngine, ToyWorld


class GatedWorld(ToyWorld):
    """Its engines look for the gate when they start a task."""

    def engine(self) -> "GatedEngine":
        return GatedEngine(self)


class GatedEngine(ToyEngine):
    """Tells that it is here, then waits."""

    def start(self, task: Task) -> Start:
        if task.id == os.environ.get("GATE_TASK"):
            gate = Path(os.environ["GATE"])
            (gate / "reached").write_bytes(b".")
            with open(gate / "on", "rb", buffering=0) as on:
                on.read(1)
        return super().start(task)
