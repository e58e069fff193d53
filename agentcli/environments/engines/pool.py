"""Live engines behind immutable states.

`await pool.step(state, action)` gives a new state and leaves the old one as it was, so
stepping one state twice is a fork. Engines run in worker processes; a task is pinned to
one of them, which holds its engines and snapshots. A state whose engine has moved on,
was evicted or died is restored from a snapshot or else by replaying its actions, and
checked against what was observed. A call over which its process ended is made once more,
on a fresh process; when that ends too, the fault is the call's. Results depend on (task,
actions) alone, never on timing. Methods are for one event loop.
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

ReplyT = TypeVar("ReplyT", frames.Opened, frames.Acted, frames.Planned, frames.Judged)
Question = frames.Act | frames.Plan | frames.Judge
"""A request about a state, still without its history."""


class State(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A point in an episode.

    Two states are never equal; `observation.state` is the key that says what is the
    same.
    """

    task: Task
    instruction: str
    actions: tuple[str, ...]
    """Executed so far."""
    observation: Observation
    """The current one."""
    observations: tuple[str, ...]
    """All texts so far, the current one included: one longer than `actions`."""
    replayed: int = 0
    """Environment steps that this continuation of its parent costs in replay: the
    parent's depth if the parent has no snapshot and had been continued before, else 0.
    Within a tree the sum depends on the tree alone, so it may be written to its ledger;
    what evictions and lost processes cost is in EnginePool.replayed_steps only.
    """
    serial: int
    """The pool's private name of the state."""
    exact: bool
    """The worker took a snapshot."""


@dataclass(eq=False, slots=True)
class _OpenTask:
    """A task in flight."""

    link: Link
    """Where it is pinned."""
    starts: int = 0
    continued: set[int] = field(default_factory=set)
    """Serials of the states that were stepped."""


class EnginePool:
    """`async with EnginePool(settings) as pool:` starts `settings.processes` workers.

    `engines_per_worker` bounds the live engines of a worker: with snapshots a task
    needs one, without them one for each branch that is still growing. Beyond the bound
    the least recently used one is taken over and its states are replayed when they are
    needed again, so it should be above the number of tasks in flight.
    """

    def __init__(
        self,
        settings: EnvironmentSettings,
        *,
        engines_per_worker: int = ENGINES_PER_WORKER,
    ) -> None:
        if settings.processes < 1:
            raise UsageError(
                f"environment.processes: at least 1 is needed, not {settings.processes}"
            )
        self.replayed_steps = 0
        """Environment steps really executed to restore states, for whatever reason."""
        self.retries = 0
        """Calls that were made once more because their process had ended."""
        self._settings = settings
        self._engines = engines_per_worker
        self._links: list[Link] = []
        self._tasks: dict[str, _OpenTask] = {}
        self._serials = itertools.count()

    @property
    def seconds(self) -> float:
        """Seconds that the workers spent on requests, summed over workers."""
        return sum(link.seconds for link in self._links)

    @property
    def solvable(self) -> bool:
        """Whether the world's engines can plan, once the pool is open."""
        return any(link.solvable for link in self._links)

    @property
    def memory_mb(self) -> float:
        """MiB that the workers hold, with what their engines run."""
        return sum(link.memory_mb for link in self._links)

    async def __aenter__(self) -> Self:
        """Starts the workers.

        Raises what setting up the world raises: UsageError, MissingError, DataError,
        EngineError.
        """
        self._links = [
            Link(self._settings, self._engines) for _ in range(self._settings.processes)
        ]
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

        Raises EngineError, and WriteError where the world has no room for its files.
        """
        opened = self._open(task.id)
        opened.starts += 1
        serial = next(self._serials)
        request = frames.Open(task, serial)
        try:
            answer = _expect(frames.Opened, await self._open_task(opened.link, request))
        except BaseException:
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
        """The state that `action` leads to; any number of times from the same state.

        Raises EngineError when the engine raises, dies or hangs, ReplayMismatchError
        when the state could not be restored exactly, UsageError when the episode has
        ended in `state`, and WriteError as `start`.
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
        """Actions that win from `state`, by its engine's own planner.

        Raises EngineError when there are none.
        """
        request = frames.Plan(state.task.id, state.serial)
        label = f"plan at step {len(state.actions)}"
        answer = _expect(frames.Planned, await self._ask(state, request, label))
        self.replayed_steps += answer.replayed
        return answer.actions

    async def judge(self, state: State, argument: str) -> Verdict:
        """What every tool would be worth in `state`, by its engine's own judge.

        Raises EngineError as `step`, and UsageError where the engine cannot judge.
        """
        request = frames.Judge(state.task.id, state.serial, argument)
        label = f"judge at step {len(state.actions)}"
        answer = _expect(frames.Judged, await self._ask(state, request, label))
        self.replayed_steps += answer.replayed
        return answer.verdict

    async def release(self, task_id: str) -> None:
        """Undoes one `start`; with the last one the task's engines are given up.

        A state that is stepped after that is still right: it is replayed.
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
        """Ends all workers; what is unanswered fails with EngineError."""
        await asyncio.gather(*(link.close() for link in self._links))

    def _open(self, task_id: str) -> _OpenTask:
        """The task's entry; one that is not in flight gets the least loaded worker."""
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

    async def _open_task(self, link: Link, request: frames.Open) -> frames.Reply:
        """Opens a task, once more where the process ended over it."""
        label = f"task {request.task.id}: start"
        try:
            return await link.call(request, label)
        except ProcessEndedError:
            self.retries += 1
            return await link.call(request, label)

    async def _ask(self, state: State, request: Question, label: str) -> frames.Reply:
        """Asks about a state; a worker that has lost it gets its history to replay.

        Asks once more where the process ended over it. `label` names the request in
        errors.
        """
        link = self._open(state.task.id).link
        label = f"task {state.task.id}: {label}"
        history = frames.History(
            task=state.task,
            actions=state.actions,
            observations=state.observations,
            key=state.observation.state,
        )
        whole = msgspec.structs.replace(request, history=history)
        try:
            reply = await link.call(request, label)
            if not isinstance(reply, frames.Lost):
                return reply
            return await link.call(whole, label)
        except ProcessEndedError:
            self.retries += 1
            return await link.call(whole, label)


def _expect(kind: type[ReplyT], reply: frames.Reply) -> ReplyT:
    if not isinstance(reply, kind):
        raise EngineError(
            f"the engine process answered {type(reply).__name__} instead of "
            f"{kind.__name__}"
        )
    return reply
