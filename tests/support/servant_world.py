"""The toy corridor with an engine that runs a process of its own, as engines on a Java machine do, and never ends it.

The pids of worker and servant are written, as one line, to the FIFO that SERVANT_FIFO names, when a task is started and
before what goes wrong. With SERVANT_LEAVES the servant leaves the worker's process group and keeps its pipes.
"""

import os
import subprocess

from agentcli.environments.protocol import Observation, Start
from agentcli.records.types import Task
from toy_world import ToyEngine, ToyWorld


class ServantWorld(ToyWorld):
    def engine(self) -> ToyEngine:
        return ServantEngine(self)


class ServantEngine(ToyEngine):
    def __init__(self, world: ToyWorld) -> None:
        super().__init__(world)
        leaves = "SERVANT_LEAVES" in os.environ
        self.servant = subprocess.Popen(["tail", "-f", "/dev/null"], start_new_session=leaves)

    def start(self, task: Task) -> Start:
        self._announce()
        return super().start(task)

    def step(self, action: str) -> Observation:
        if self.world.options.fault and self._faulty(action):
            self._announce()
        return super().step(action)

    def _announce(self) -> None:
        with open(os.environ["SERVANT_FIFO"], "w", encoding="ascii") as fifo:
            fifo.write(f"{os.getpid()} {self.servant.pid}\n")
