"""The seam to worlds: what each one has, and what it may have besides.

A World has a card, tasks and engines. An Engine plays one task at a time inside a
worker process, so nothing here needs to be thread-safe. That is all a new world must
write: one folder or file, and one line in the registry.

The rest are capabilities. A stage that needs one asks by type, and refuses in one line
where it is missing:

    Forkable   the engine copies its state; without it the pool replays the actions and
               checks every observation
    Retracing  the engine replays an action at less cost than a step
    Solvable   the engine knows actions that win; without it there is no policy `expert`
    Closable   the engine holds something that must be let go of
    Guiding    the world says how actions are written, where they are too many to list
    Tutor      the world teaches policies from scratch: a short prompt, a vocabulary, a
               searching expert
    Inspected  the world says what this machine has of what it can use (agentcli doctor)
    Toolbox    the world's actions are tools by name, beside thoughts and an answer
    Judging    the engine scores what each of these actions would be worth
    Serving    the world's server answers at further addresses (agentcli env serve)
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    runtime_checkable,
)

import msgspec

from agentcli.errors import EngineError, UsageError
from agentcli.records.pictures import Picture as Picture
from agentcli.records.types import Reward, Task

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

CapabilityT = TypeVar("CapabilityT")

WORLD_FAILED = "the world failed: "
"""Begins the fault of a leaf in which the world itself raised, or came back to a state
that is not what it was. Such a fault would most likely repeat.
"""


class LostEngineError(Exception):
    """What engines share is gone: the process ends, and the pool replays elsewhere."""


class NoEngineLeftError(EngineError):
    """No further engine can be had now; one that is there may be taken over."""


class Observation(msgspec.Struct, kw_only=True, frozen=True):
    """An engine's report after start or step."""

    text: str
    actions: tuple[str, ...] = ()
    """Actions worth showing, in a fixed order; empty where the world has none. A hint:
    the engine decides what it accepts.
    """
    state: str
    """Exact state key: equal keys mean that the future is the same, whatever was read
    last. For replay, forks and repetition.
    """
    canonical: str | None = None
    """The papers' state f(s) (002 B.1), for credit: what the agent sees, with what it
    cannot see but must know (what it holds, what was done to things). It merges states
    that look the same, on purpose. None: the world has no other than `state`.
    """
    accepted: bool = True
    """The engine's verdict on the action that led here. False: the action was not
    possible, and nothing happened.
    """
    looked: bool = False
    """The action that led here only looked: it changed nothing that matters (002 C.1).
    """
    reward: Reward = 0.0
    end: Literal["success", "failure", "truncated"] | None = None
    """How the episode ended; None while it goes on. truncated: by a time limit of the
    world, without success.
    """
    pictures: tuple[Picture, ...] = ()
    """Images that belong to the text, in order."""


class Start(msgspec.Struct, kw_only=True, frozen=True):
    """An engine's report when a task is opened."""

    instruction: str
    """The task sentence."""
    observation: Observation


class Context(msgspec.Struct, kw_only=True, frozen=True):
    """Everything a policy may know when it acts: the task and the agent's own past.

    observations[t] was seen before actions[t]; observations is one longer. A malformed
    response left the action ''.
    """

    task: Task
    instruction: str
    observations: tuple[str, ...]
    actions: tuple[str, ...] = ()
    admissible: tuple[str, ...] = ()
    """Observation.actions of the last observation."""
    pictures: tuple[Picture, ...] = ()
    """Observation.pictures of the last observation."""


class Card(msgspec.Struct, kw_only=True, frozen=True):
    """A world's facts that need no engine."""

    name: str
    role: str
    """The sentence that opens the full prompt ("You are an expert agent operating in
    ...").
    """
    splits: tuple[str, ...]
    split: str = "train"
    """The split that training walks unless another is named."""
    evaluation_split: str
    """The split that evaluations walk unless another is named."""
    meanings: Mapping[str, str] = {}
    """What the tasks of a split test, where its name does not say."""
    new_kinds: tuple[str, ...] = ()
    """Splits that are meant for kinds of tasks which were not trained on."""
    dialect: str = "full"
    """The prompt style that suits the world."""
    exploring: tuple[str, ...] = ()
    """First words of the actions that find out what there is. An expert with several
    copies takes them in all of these.
    """
    best_reward: float | None = 1.0
    """Sum of the rewards of a faultless episode; None where it differs from task to
    task.
    """
    reads_data: bool = False
    """It reads the folder in environment.data; elsewhere a folder is refused."""
    extra: str | None = None
    """The extra of this package that installs what its engines need."""


class Engine(Protocol):
    """One live game, in a worker process.

    Any exception becomes an errored leaf with its message.
    """

    def start(self, task: Task) -> Start:
        """Opens a task at its beginning."""
        ...

    def step(self, action: str) -> Observation:
        """The answer to any text."""
        ...


@runtime_checkable
class Forkable(Protocol):
    """An engine that copies its state exactly and cheaply."""

    def snapshot(self) -> Any:
        """A copy of the present state, for this engine object and this task.

        None where it has none and must be replayed.
        """
        ...

    def restore(self, snapshot: Any) -> Observation:
        """Makes a snapshot's state the present one.

        Gives the observation that had led there. What the engine can tell again, it
        tells as things are now: the pool refuses a copy in which anything differs.
        """
        ...


@runtime_checkable
class Retracing(Protocol):
    """An engine that takes a known step at less cost than a new one."""

    def retrace(self, action: str) -> str:
        """The text that `step` would observe; the state is then the same too."""
        ...


@runtime_checkable
class Solvable(Protocol):
    """An engine that can compute how to win."""

    def plan(self) -> list[str]:
        """Actions that win from the present state, computed from the true state.

        Raises EngineError when there are none.
        """
        ...


@runtime_checkable
class Closable(Protocol):
    """An engine that holds something: a process, a file, a share of a library."""

    def close(self) -> None:
        """Lets go of it; the engine is not used again."""
        ...


class Verdict(msgspec.Struct, kw_only=True, frozen=True):
    """What every action would be worth with one argument (001 section 4.1)."""

    scores: dict[str, float]
    """0 to 10 by action: every tool of the Toolbox, and `cot`."""
    process_ok: bool
    """Whether the step makes sense."""


@runtime_checkable
class Judging(Protocol):
    """An engine that judges what could be done next, without a model."""

    def judge(self, argument: str) -> Verdict:
        """What each tool, or a thought, would be worth in the present state.

        `argument` is what the tool would be called with. The state stays as it is.
        """
        ...


class World(Protocol):
    """A family of tasks.

    It is made from EnvironmentSettings, is cheap, and imports no engine until
    `engine()`.
    """

    @property
    def card(self) -> Card:
        """Its facts; the class has them too, so that worlds can be listed."""
        ...

    def tasks(self, split: str) -> list[Task]:
        """All tasks of a split, in their fixed order, without starting an engine.

        The split is one of the card's. Raises DataError for an unreadable data folder.
        """
        ...

    def engine(self) -> Engine:
        """A new engine."""
        ...


@runtime_checkable
class Toolbox(Protocol):
    """A world whose actions are calls of tools, written `NAME[argument]`.

    Two actions are not tools: `cot[thought]` thinks on, and `answer[...]` ends the
    episode.
    """

    @property
    def tools(self) -> Mapping[str, str]:
        """One line about each tool, by its name, in the order they are shown."""
        ...


@runtime_checkable
class Guiding(Protocol):
    """A world with more actions than a full prompt can list: it says this instead."""

    @property
    def forms(self) -> str:
        """How actions are written."""

    def sight(self, context: Context) -> str:
        """What an action can be about now."""


FINISHED = "done"
"""The sentence of a searching expert that has nothing left to do although the episode
goes on. The first rest is imitated, further ones are not: the rest of such an
episode is one step repeated.
"""


class Advice(NamedTuple):
    """A searching expert's next move."""

    tag: str
    """think or explore."""
    sentence: str
    action: str


@runtime_checkable
class Tutor(Protocol):
    """A world that can teach a policy from scratch.

    Such a policy knows neither the world's words nor how to act.
    """

    @property
    def habits(self) -> type[msgspec.Struct]:
        """Settings of the faults that its searching expert has on purpose.

        Each is a field of `demos` too.
        """
        ...

    def compact(self, context: Context) -> str:
        """A short prompt with all that a decision needs."""
        ...

    def vocabulary(self) -> list[str]:
        """Entity names that a tiny tokenizer must hold as whole tokens, sorted."""
        ...

    def next(
        self,
        context: Context,
        seed: int,
        habits: Any,
    ) -> Advice:
        """The searching expert's move, from the agent's own past alone.

        `seed` is the episode's.
        """
        ...


class Requisite(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a world can use, as this machine has it."""

    name: str
    present: bool
    detail: str
    get: str | None = None
    """The command to type for it; None where nothing is to be done."""


@runtime_checkable
class Inspected(Protocol):
    """A world that looks for its data on this machine.

    The class is asked, so no settings are needed.
    """

    @staticmethod
    def requisites(environ: Mapping[str, str]) -> list[Requisite]:
        """The things the world can use, as this machine has them.

        Starts, makes and fetches nothing; raises nothing for what is broken.
        """
        ...

    @staticmethod
    def cache_folder(environ: Mapping[str, str]) -> Path | None:
        """The folder where the world keeps files of its own; None where it has none."""
        ...


@runtime_checkable
class Serving(Protocol):
    """A world whose server answers at further addresses, behind the same token."""

    def routes(self) -> "Sequence[BaseRoute]":
        """Starlette's routes: `Route("/retrieve", answer)`; `answer` may be async."""


def world_as(
    world: World,
    capability: type[CapabilityT],
    key: str,
    value: str,
) -> CapabilityT:
    """The world with a capability that the setting `key` asks for.

    Raises UsageError where the world has it not.
    """
    if isinstance(world, capability):
        return world
    raise UsageError(
        f"{key}: {value} needs a world that is a {capability.__name__}, and "
        f"{world.card.name} is not one; choose another {key}, or "
        "another --env"
    )
