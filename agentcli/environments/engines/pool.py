"""Live engines behind immutable states.

`await pool.step(state, action)` returns a new state and does not change the old one, so
stepping a state twice is a fork. Engines run in worker processes; a task is pinned to
one worker, which keeps its engines and snapshots. If the engine of a state has moved
on, was evicted or died, the state is restored from a snapshot or by replaying its
actions, and compared with the recorded observations. If a process ends during a call,
the call is tried once more on a new process; if that ends too, the call fails. Results
depend on (task, actions) alone, never on timing. Use a pool in only one event loop.
"""

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Self, TypeVar

import msgspec

from agentcli.environments.engines import frames
from agentcli.environments.engines.link import Link, ProcessEndedError
from agentcli.environments.protocol import Observation, Verdict
from agentcli.errors import EngineError, UsageError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task

ENGINES_PER_WORKER = 128
"""Most live engines of a worker. With snapshots a task needs one engine; without them,
one for each branch that is still growing. Beyond the limit the least recently used
engine is reused, and its states are replayed when they are needed again.
"""

ReplyT = TypeVar("ReplyT", frames.Opened, frames.Acted, frames.Consulted)
Question = frames.Act | frames.Consult
"""A request about a state, before its history is attached."""


class State(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A point in an episode.

    Two State objects are never equal; compare their keys, `observation.state`, instead.
    """

    task: Task
    instruction: str
    actions: tuple[str, ...]
    """Actions executed so far."""
    observation: Observation
    """The current observation."""
    observations: tuple[str, ...]
    """All texts so far, the current one included: one longer than `actions`."""
    replayed: int = 0
    """Environment steps that had to be replayed to continue the parent: its depth if it
    has no snapshot and had been continued before, else 0. The sum over a tree depends
    only on the tree, so its ledger may contain it. Replays after evictions and lost
    processes are counted only in EnginePool.replayed_steps.
    """
    serial: int
    """The pool's private number of the state."""
    exact: bool
    """The worker took a snapshot."""


@dataclass(eq=False, slots=True)
class _OpenTask:
    """A task in flight."""

    link: Link
    """The worker that the task is pinned to."""
    starts: int = 0
    continued: set[int] = field(default_factory=set)
    """Serial numbers of the states that were stepped."""


class EnginePool:
    """`async with EnginePool(settings) as pool:` starts `settings.processes` workers."""

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.replayed_steps = 0
        """Environment steps actually executed to restore states, for any reason."""
        self.retries = 0
        """Calls that were tried again because their process had ended."""
        self._settings = settings
        self._links: list[Link] = []
        self._tasks: dict[str, _OpenTask] = {}
        self._serials = itertools.count()

    @property
    def seconds(self) -> float:
        """Seconds that the workers spent on requests, summed over workers."""
        return sum(link.seconds for link in self._links)

    @property
    def solvable(self) -> bool:
        return any(link.solvable for link in self._links)

    @property
    def memory_mb(self) -> float:
        """MiB that the workers use, including child processes of their engines."""
        return sum(link.memory_mb for link in self._links)

    async def __aenter__(self) -> Self:
        """Starts the workers.

        Raises what setting up the world raises: UsageError, MissingError, DataError,
        EngineError.
        """
        self._links = [
            Link(self._settings, ENGINES_PER_WORKER)
            for _ in range(self._settings.processes)
        ]
        # Where __aenter__ raises, Python does not call __aexit__.
        try:
            await asyncio.gather(*(link.start() for link in self._links))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self, task: Task) -> State:
        """Opens a task.

        Raises EngineError, and WriteError if the world cannot write its files.
        """
        opened = self._open(task.id)
        opened.starts += 1
        serial = next(self._serials)
        request = frames.Open(task, serial)
        label = f"task {task.id}: start"
        try:
            reply = await self._call(opened.link, request, request, label)
            answer = _expect(frames.Opened, reply)
        except BaseException:
            # The caller has no State to release: the worker would stay busy.
            await self.release(task.id)
            raise
        observation = answer.start.observation
        return State(
            task=task,
            instruction=answer.start.instruction,
            actions=(),
            observation=observation,
            observations=(observation.text,),
            serial=serial,
            exact=answer.exact,
        )

    async def step(self, state: State, action: str) -> State:
        """The state that `action` leads to; a state can be stepped any number of times.

        Raises EngineError if the engine raises, dies or hangs, ReplayMismatchError if
        the state could not be restored exactly, UsageError if the episode has ended in
        `state`, and WriteError as `start` does.
        """
        if state.observation.end is not None:
            raise UsageError(
                f"task {state.task.id}: no step can follow {state.actions[-1:]}, "
                "which ended the episode"
            )
        opened = self._open(state.task.id)
        serial = next(self._serials)
        request = frames.Act(state.task.id, state.serial, action, serial)
        label = f"step {len(state.actions) + 1} {action!r}"
        answer = _expect(frames.Acted, await self._ask(state, request, label))
        self.replayed_steps += answer.replayed
        again = state.serial in opened.continued
        opened.continued.add(state.serial)
        return State(
            task=state.task,
            instruction=state.instruction,
            actions=(*state.actions, action),
            observation=answer.observation,
            observations=(*state.observations, answer.observation.text),
            replayed=len(state.actions) if again and not state.exact else 0,
            serial=serial,
            exact=answer.exact,
        )

    async def plan(self, state: State) -> list[str]:
        """Actions that win from `state`, computed by its engine's planner.

        Raises EngineError if there are none.
        """
        plan = await self._consult(state, None, "plan")
        assert isinstance(plan, list)
        return plan

    async def judge(self, state: State, argument: str) -> Verdict:
        """The engine's score of every tool in `state`.

        Raises EngineError as `step` does, and UsageError if the engine cannot judge.
        """
        verdict = await self._consult(state, argument, "judge")
        assert isinstance(verdict, Verdict)
        return verdict

    async def _consult(
        self, state: State, argument: str | None, label: str
    ) -> list[str] | Verdict:
        request = frames.Consult(state.task.id, state.serial, argument)
        label = f"{label} at step {len(state.actions)}"
        answer = _expect(frames.Consulted, await self._ask(state, request, label))
        self.replayed_steps += answer.replayed
        return answer.advice

    async def release(self, task_id: str) -> None:
        """Undoes one `start`; undoing the last one frees the task's engines.

        Its states can still be stepped afterwards: they are replayed.
        """
        opened = self._tasks.get(task_id)
        if opened is None:
            return
        opened.starts -= 1
        if opened.starts <= 0:
            del self._tasks[task_id]
            opened.link.tasks -= 1
            opened.link.post(frames.Release(task_id))

    async def close(self) -> None:
        """Ends all workers; unanswered calls fail with EngineError."""
        await asyncio.gather(*(link.close() for link in self._links))

    def _open(self, task_id: str) -> _OpenTask:
        """The task's entry; a new task gets the worker with the fewest tasks."""
        opened = self._tasks.get(task_id)
        if opened is None:
            if not self._links:
                raise UsageError(
                    "the engine pool is not open: use it as `async with "
                    "EnginePool(settings) as pool`"
                )
            link = min(self._links, key=lambda link: link.tasks)
            link.tasks += 1
            opened = _OpenTask(link)
            self._tasks[task_id] = opened
        return opened

    async def _call(
        self, link: Link, request: frames.Request, again: frames.Request, label: str
    ) -> frames.Reply:
        """The reply; asks `again`, once, if the process ended during the request."""
        try:
            return await link.call(request, label)
        except ProcessEndedError:
            self.retries += 1
            return await link.call(again, label)

    async def _ask(self, state: State, request: Question, label: str) -> frames.Reply:
        """Asks about a state; a worker that has lost it replays its history.

        `label` names the request in errors.
        """
        opened = self._open(state.task.id)
        label = f"task {state.task.id}: {label}"
        history = frames.History(
            task=state.task,
            actions=state.actions,
            observations=state.observations,
            key=state.observation.state,
        )
        # Sent only on demand: a history grows with the episode, and is rarely needed.
        whole = msgspec.structs.replace(request, history=history)
        # A state of a released task is asked about too: its engine is held meanwhile.
        opened.starts += 1
        try:
            reply = await self._call(opened.link, request, whole, label)
            if isinstance(reply, frames.Lost):
                reply = await self._call(opened.link, whole, whole, label)
        finally:
            await self.release(state.task.id)
        return reply


def _expect(kind: type[ReplyT], reply: frames.Reply) -> ReplyT:
    if not isinstance(reply, kind):
        raise EngineError(
            f"the engine process answered {type(reply).__name__} instead of "
            f"{kind.__name__}"
        )
    return reply
