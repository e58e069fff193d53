"""One session at the server: the states that one client has reached.

Its engines live in the server's pool, so sessions share no state, and an engine that
dies or hangs does not end the server.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from agentcli.environments.engines.pool import EnginePool, State
from agentcli.environments.protocol import WORLD_FAILED
from agentcli.environments.remote import wire
from agentcli.errors import AgentCliError, EngineError, UsageError
from agentcli.records.faults import UNREADABLE, fault_in, shown
from agentcli.records.types import Task
from agentcli.registry import nearest

MOST_STATES = 10_000
MOST_STATE_BYTES = 64 * 2**20
"""What a session may hold: its states, and the bytes of their texts."""
POINTER_BYTES = 16
"""What an action and its observation take in the history of each later state."""


class TaskIndex:
    """The tasks of a served world, by split and by id."""

    def __init__(self, by_split: Mapping[str, Sequence[Task]], split: str) -> None:
        self.by_split = by_split
        self._split = split
        """The split of a reset that names none."""
        self._by_id = {task.id: task for tasks in by_split.values() for task in tasks}

    def chosen(self, data: wire.ResetData) -> Task:
        """The task that a reset asks for. Raises UsageError where there is none."""
        if data.task is not None:
            if data.task not in self._by_id:
                raise UsageError(f"there is no task {shown(data.task)!r} here")
            return self._by_id[data.task]
        tasks = self.of(data.split or self._split)
        if not tasks:
            raise UsageError("there are no tasks here")
        return tasks[(data.seed or 0) % len(tasks)]

    def of(self, split: str) -> Sequence[Task]:
        """The tasks of a split. Raises UsageError for an unknown one."""
        if split not in self.by_split:
            hint = nearest(split, self.by_split)
            raise UsageError(f"there is no split {shown(split)!r} here; {hint}")
        return self.by_split[split]


class WorldSession:
    """The states of one client, by their numbers."""

    def __init__(self, pool: EnginePool, tasks: TaskIndex) -> None:
        self.id = uuid4().hex
        self._pool = pool
        self._tasks = tasks
        self._states: list[State] = []
        self._bytes = 0
        """The size of the states, about as they were sent."""
        self._answers: dict[type, Callable[[Any], Awaitable[str]]] = {
            wire.ResetMessage: self._reset,
            wire.StepMessage: self._step,
            wire.StateMessage: self._state,
            wire.PlanMessage: self._plan,
            wire.JudgeMessage: self._judge,
        }

    async def answer(self, text: str) -> str | None:
        """The answer to a message; None to the last one."""
        try:
            message = wire.read_message(text)
        except UNREADABLE as error:
            fault = fault_in(error, text.encode(errors="replace"))
            return wire.packed("error", wire.Fault(fault, wire.INVALID, "UsageError"))
        if isinstance(message, wire.CloseMessage):
            return None
        try:
            return await self._answers[type(message)](message)
        except AgentCliError as error:
            # The client's own pool says again that the world failed.
            _, _, reason = str(error).rpartition(WORLD_FAILED)
            return wire.packed("error", wire.Fault(reason, kind=type(error).__name__))

    async def close(self) -> None:
        """Gives the engines of its task back."""
        if self._states:
            await self._pool.release(self._states[0].task.id)
            self._states = []
            self._bytes = 0

    async def _reset(self, message: wire.ResetMessage) -> str:
        task = self._tasks.chosen(message.data)
        await self.close()
        state = await self._pool.start(task)
        return self._reached(state, state.instruction)

    async def _step(self, message: wire.StepMessage) -> str:
        state = self._at(message.data.at)
        if len(self._states) >= MOST_STATES or self._bytes >= MOST_STATE_BYTES:
            raise EngineError(
                f"this session holds {len(self._states)} states of {self._bytes} bytes, "
                f"and may hold {MOST_STATES} of {MOST_STATE_BYTES}; a reset drops them"
            )
        return self._reached(await self._pool.step(state, message.data.action))

    async def _state(self, message: wire.StateMessage) -> str:
        task, steps = None, 0
        if self._states:
            task = self._states[-1].task.id
            steps = len(self._states[-1].actions)
        return wire.packed("state", wire.SessionState(self.id, steps, task))

    async def _plan(self, message: wire.PlanMessage) -> str:
        actions = await self._pool.plan(self._at(message.data.at))
        return wire.packed("plan", wire.ServedPlan(actions))

    async def _judge(self, message: wire.JudgeMessage) -> str:
        data = message.data
        verdict = await self._pool.judge(self._at(data.at), data.argument)
        return wire.packed("verdict", verdict)

    def _at(self, number: int | None) -> State:
        """The state of a number. Raises UsageError where there is none."""
        if not self._states:
            raise UsageError("no task is open in this session; send a reset first")
        if number is None:
            return self._states[-1]
        if not 0 <= number < len(self._states):
            raise UsageError(f"this session has no state {number}")
        return self._states[number]

    def _reached(self, state: State, instruction: str | None = None) -> str:
        """The answer that shows a new state."""
        self._states.append(state)
        served = wire.ServedObservation(
            **msgspec.structs.asdict(state.observation),
            number=len(self._states) - 1,
            exact=state.exact,
            instruction=instruction,
        )
        done = served.end is not None
        step = wire.ServedStep(served, served.reward, done)
        answer = wire.packed("observation", step)
        history = sum(map(len, state.actions[-1:])) + POINTER_BYTES * len(state.actions)
        self._bytes += len(answer) + history
        return answer
