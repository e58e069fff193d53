"""An engine that plays in a session of a served world."""

from typing import Any

from agentcli.environments.protocol import Observation, Start, Verdict
from agentcli.environments.remote import wire
from agentcli.environments.remote.client import Connection
from agentcli.errors import EngineError
from agentcli.records.types import Task


class RemoteEngine:
    """One session: Forkable where the server's engine is, and Judging."""

    def __init__(self, url: str, world: str) -> None:
        self._url = url
        self._world = world
        self._connection = Connection(url)
        self._now: wire.ServedObservation | None = None
        """The present state."""

    def start(self, task: Task) -> Start:
        """Opens a task. Raises EngineError where the server plays another world."""
        if task.world != self._world:
            raise EngineError(
                f"{self._url} serves {self._world}, and the task is one of {task.world}"
            )
        now = self._step("reset", {"task": task.id})
        if now.instruction is None:
            raise EngineError(f"{self._url}: it opened a task without an instruction")
        return Start(instruction=now.instruction, observation=now.plain())

    def step(self, action: str) -> Observation:
        """Acts in the present state."""
        return self._step("step", {"action": action, "at": self._at}).plain()

    def snapshot(self) -> wire.ServedObservation | None:
        """The state's number at the server; None where the server would replay."""
        return self._now if self._now is not None and self._now.exact else None

    def restore(self, snapshot: wire.ServedObservation) -> Observation:
        """Continues from this state; the server restores it at the next action."""
        self._now = snapshot
        return snapshot.plain()

    def judge(self, argument: str) -> Verdict:
        """The verdict of the served engine."""
        data = {"argument": argument, "at": self._at}
        return self._connection.ask("judge", data, "verdict", Verdict)

    def close(self) -> None:
        """Ends the session."""
        self._connection.close()

    @property
    def _at(self) -> int | None:
        return None if self._now is None else self._now.number

    def _step(self, kind: str, data: dict[str, Any]) -> wire.ServedObservation:
        answer = self._connection.ask(kind, data, "observation", wire.ServedStep)
        self._now = answer.observation
        return answer.observation


class PlanningRemoteEngine(RemoteEngine):
    """A RemoteEngine whose served engine is Solvable."""

    def plan(self) -> list[str]:
        """Actions that win from the present state."""
        data = {"at": self._at}
        plan = self._connection.ask("plan", data, "plan", wire.ServedPlan)
        return plan.actions
