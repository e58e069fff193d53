"""The one protocol every world speaks.

A World lists tasks and makes engines; an Engine plays one task at a time inside a worker process (nothing here needs to
be thread-safe). The pool turns engines into immutable states: it snapshots where the engine can, and replays with every
observation checked where it cannot. Adding a world = one folder with a World class and one registry line.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from agentcli.records.types import Task


class Picture(msgspec.Struct, frozen=True):
    """An image that belongs to an observation."""

    png: bytes


class Observation(msgspec.Struct, kw_only=True, frozen=True):
    """An engine's report after start or step."""

    text: str
    actions: tuple[str, ...] = ()
    """Actions worth showing, in a fixed order; empty where the world has none. A hint: the engine decides what it accepts."""
    state: str
    """Exact state key: equal keys mean that the future is the same, whatever was read last. For replay, forks and repetition."""
    canonical: str | None = None
    """The papers' state f(s) (002 B.1), for credit: what the agent sees, with what it cannot see but must know (what it holds, what
    was done to things). It merges on purpose what looks the same. None: the world has no other than `state`."""
    accepted: bool = True
    """The engine's verdict on the action that led here. False: the action was not possible, and nothing happened."""
    looked: bool = False
    """The action that led here only looked: it changed nothing that matters (002 B.2)."""
    reward: float = 0.0
    end: Literal["success", "failure"] | None = None
    """How the episode ended; None while it goes on."""
    pictures: tuple[Picture, ...] = ()
    """Images that belong to the text, in order."""


class Start(msgspec.Struct, kw_only=True, frozen=True):
    """What an engine reports when a task is opened."""

    instruction: str
    """The task sentence."""
    observation: Observation


class Context(msgspec.Struct, kw_only=True, frozen=True):
    """Everything a policy may know when it acts: the task and the agent's own past. observations[t] was seen before
    actions[t]; observations is one longer. A malformed response left the action ''."""

    task: Task
    instruction: str
    observations: tuple[str, ...]
    actions: tuple[str, ...] = ()
    admissible: tuple[str, ...] = ()


class Engine(Protocol):
    """One live game, in a worker process. Any exception becomes an errored leaf with its message."""

    def start(self, task: Task) -> Start: ...

    def step(self, action: str) -> Observation: ...

    def snapshot(self) -> Any:
        """An exact, cheap copy of the state, or None where the engine has none (the pool then replays). Only valid
        for this engine object and this task."""

    def restore(self, snapshot: Any) -> Observation:
        """Make a snapshot's state the current one. Gives the observation that had led there; whatever of it the engine can tell
        again, it tells as things are now (the pool refuses a copy in which anything differs)."""

    def plan(self) -> list[str]:
        """Actions that win from the current state, computed from the true state (for the expert policy).
        Raises EngineError when there is no plan."""

    def close(self) -> None: ...


class World(Protocol):
    """A family of tasks. Constructed from EnvironmentSettings; cheap, imports no engine until `engine()`."""

    name: str
    role: str
    """The sentence that opens the full prompt ("You are an expert agent operating in ...")."""

    def splits(self) -> list[str]: ...

    def tasks(self, split: str) -> list[Task]:
        """All tasks of a split, in their fixed order, without starting an engine. Raises UsageError for an unknown
        split and DataError for an unreadable data folder."""

    def engine(self) -> Engine: ...

    def compact(self, context: Context) -> str:
        """The world's short prompt for tiny policies; raises UsageError where the world has none."""

    def vocabulary(self) -> list[str]:
        """Entity names that a tiny tokenizer must hold as whole tokens, sorted."""

    def search(self, context: Context, seed: int, habits: "Habits") -> tuple[str, str, str]:
        """The searching expert's next move from the agent's own past alone: (tag, one short sentence, action).
        Raises UsageError where the world has none."""


FINISHED = "done"
"""The sentence of a searching expert that has nothing left to do although the episode goes on. That it rests is imitated, that
it goes on resting is not: the rest of such an episode is one step repeated."""


class Habits(msgspec.Struct, kw_only=True, frozen=True):
    """What is wrong with a searching expert on purpose (see DemosSettings)."""

    forget: bool = False
    """This episode leaves the tool step out (or the second object)."""
    overlook: float = 0.0
    """Chance to pass by a closed receptacle."""
    wander: bool = True
    """Visits places in an order of its own, drawn by the seed, and not in that of the admissible actions."""


def select(world: World, tasks: Sequence[Task], where: dict[str, list[str]]) -> list[Task]:
    """Keeps the tasks whose attributes are among those asked for, in their order.

    Every task has the attributes kind and split, and its own. Raises UsageError when `where` names one that a task does not have.
    """
    from agentcli.errors import UsageError

    kept = []
    for task in tasks:
        attributes = {"kind": task.kind, "split": task.split, **task.attributes}
        unknown = [name for name in where if name not in attributes]
        if unknown:
            raise UsageError(
                f"--where {unknown[0]}: {world.name} has no such attribute; it has {', '.join(attributes)}"
            )
        if all(attributes[name] in values for name, values in where.items()):
            kept.append(task)
    return kept
