"""One live ALFWorld game behind the Engine protocol, on the fast or the stock backend.

Both give the same answers, word for word; the fast one steps hundreds of times faster
and has exact snapshots. It needs a planner library that can restore states. If the
installed library cannot, the error says what to type.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentcli.environments.protocol import Observation, Start
from agentcli.errors import MissingError, UsageError
from agentcli.records.types import Task
from agentcli.worlds.alfworld.fast import library
from agentcli.worlds.alfworld.fast.backend import FastBackend
from agentcli.worlds.alfworld.fast.game import Identity, identify
from agentcli.worlds.alfworld.statekey import Fact
from agentcli.worlds.alfworld.stock import StockBackend

TASK_IS = "Your task is to:"


Backend = FastBackend | StockBackend


class AlfworldEngine:
    """Plays one task at a time.

    It is not thread-safe; any number of engines can live in one process and be stepped
    in turn. `locate` gives a task's game.tw-pddl file. `cache` is a folder for
    translated games (108 thousand characters of PDDL become 20 kB), shared by any
    number of processes; None translates anew in each process.
    """

    def __init__(
        self,
        locate: Callable[[Task], Path],
        backend: str = "fast",
        cache: Path | None = None,
    ) -> None:
        self._locate = locate
        self._backend = _backend(backend, cache)
        self._loaded: Identity | None = None
        self.instruction = ""
        """The sentence after "Your task is to:"."""

    def start(self, task: Task) -> Start:
        """Opens a task, or resets it where it is open already.

        Raises DataError for a file that is not a game.
        """
        self.load(task)
        observation = self._backend.reset()
        self.instruction = observation.text.partition(TASK_IS)[2].strip()
        return Start(instruction=self.instruction, observation=observation)

    def load(self, task: Task) -> None:
        """The first half of start: reads the task's file unless it is open already."""
        path = self._locate(task)
        identity = identify(path)
        if identity != self._loaded:
            self._loaded = None
            self._backend.load(path)
            self._loaded = identity

    def step(self, action: str) -> Observation:
        """TextWorld's answer to any text.

        `accepted` is False for what was not among the actions before.
        """
        return self._backend.step(action)

    def snapshot(self) -> Any:
        """An immutable reference to the current state; None on the stock backend."""
        return self._backend.snapshot()

    def restore(self, snapshot: Any) -> Observation:
        """Makes a snapshot's state the current one.

        Returns the observation that was made there; the planner computes the possible
        actions, and whether the game is won, anew. Raises EngineError for a snapshot of
        another game.
        """
        return self._backend.restore(snapshot)

    def facts(self) -> tuple[Fact, ...]:
        """All facts as TextWorld has them now, sorted."""
        return tuple(self._backend.facts())

    def plan(self) -> list[str]:
        """Actions that win from the current state; none when it is won.

        Raises EngineError when there is no plan.
        """
        from agentcli.worlds.alfworld.planner import plan

        return plan(self.facts(), self.instruction)

    def close(self) -> None:
        """Ends the game; the engine can start another."""
        self._backend.close()
        self._loaded = None


def _backend(name: str, cache: Path | None) -> Backend:
    if name == "stock":
        return StockBackend()
    if name != "fast":
        raise UsageError(f"environment.options.engine: {name!r}; choose fast or stock")
    if not library.has_snapshots():
        raise MissingError(
            "the installed fast_downward cannot restore states; type: pip install "
            "fast_downward_textworld==20.6.4, or play the stock engine with --set "
            "environment.options.engine=stock (slow, forks replay)"
        )
    return FastBackend(cache)
