"""The interface of worlds: what every world provides, and optional capabilities.

A World has a card, tasks and engines. An Engine plays one task at a time inside a
worker process, so nothing here needs to be thread-safe. A new world has to implement
no more than these two: one folder or file, and one line in the registry.

Everything else is an optional capability: a `runtime_checkable` protocol below. A stage
that needs one checks for its type, and refuses with a one-line error if it is missing.
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
from agentcli.records.section import read
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Reward, Task

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

CapabilityT = TypeVar("CapabilityT")
OptionsT = TypeVar("OptionsT", bound=msgspec.Struct)
PLACE = "environment.options"
"""The path of a world's own settings."""

WORLD_FAILED = "the world failed: "
"""Start of a leaf's error message if the world itself raised, or if a state could not
be restored exactly. Such an error would most likely happen again.
"""


class LostEngineError(Exception):
    """A resource that engines share is lost: the process ends; the pool replays."""


class NoEngineLeftError(EngineError):
    """No further engine can be made now, but an existing one may be reused."""


class Observation(msgspec.Struct, kw_only=True, frozen=True):
    """An engine's report after start or step."""

    text: str
    actions: tuple[str, ...] = ()
    """Actions to show the agent, in a fixed order; empty if the world lists none. They
    are only a hint: the engine decides which actions it accepts.
    """
    state: str
    """Exact state key: equal keys mean the same future, whatever the last text was.
    Used for replay, forks and detecting repetition.
    """
    canonical: str | None = None
    """The papers' state f(s) (RewardFlow B.1), used for credit: what the agent sees,
    plus what it cannot see but must know (what it holds, what was done to things).
    States that look the same are merged on purpose. None: credit uses `state`.
    """
    accepted: bool = True
    """Whether the engine accepted the action that led here. False: it was not possible;
    mostly nothing happened then, but a world may count it or, as EZPoints, write it down.
    """
    looked: bool = False
    """The action that led here only looked: it changed nothing that matters (RewardFlow
    C.1).
    """
    reward: Reward = 0.0
    end: Literal["success", "failure", "truncated"] | None = None
    """How the episode ended; None while it continues. truncated: it reached a time
    limit of the world without success.
    """
    pictures: tuple[Picture, ...] = ()
    """Images that belong to the text, in order."""


class Start(msgspec.Struct, kw_only=True, frozen=True):
    """An engine's report when a task is opened."""

    instruction: str
    """The task sentence."""
    observation: Observation


class Context(msgspec.Struct, kw_only=True, frozen=True):
    """Everything a policy may know when it acts: the task and the agent's own history.

    observations[t] was seen before actions[t], so observations is one longer. The
    action of a malformed response is ''.
    """

    task: Task
    instruction: str
    observations: tuple[str, ...]
    actions: tuple[str, ...] = ()
    admissible: tuple[str, ...] = ()
    """Observation.actions of the last observation."""
    pictures: tuple[Picture, ...] = ()
    """Observation.pictures of the last observation."""

    @property
    def own(self) -> tuple[str, ...]:
        """The observations of this copy alone.

        In the context of an expert in several copies, those of the others come first.
        """
        return self.observations[-len(self.actions) - 1 :]


class Card(msgspec.Struct, kw_only=True, frozen=True):
    """The facts about a world that can be known without an engine."""

    name: str
    role: str
    """The sentence that opens the full prompt ("You are an expert agent operating in
    ...").
    """
    splits: tuple[str, ...]
    split: str = "train"
    """The default split for training."""
    evaluation_split: str
    """The default split for evaluations."""
    meanings: Mapping[str, str] = {}
    """What a split tests, for each split whose name does not say so."""
    new_kinds: tuple[str, ...] = ()
    """Splits that test kinds of tasks which were not trained on."""
    dialect: str = "full"
    """The default prompt style of the world."""
    exploring: tuple[str, ...] = ()
    """First words of the actions that explore the world. An expert with several copies
    takes these actions in all of them.
    """
    best_reward: float | None = 1.0
    """Sum of the rewards of a perfect episode; None if it differs from task to task."""
    reads_data: bool = False
    """The world reads the folder in environment.data; other worlds refuse a folder."""
    extra: str | None = None
    """The extra of this package that installs the dependencies of its engines."""


class Engine(Protocol):
    """One live game, in a worker process.

    Any exception becomes an errored leaf with its message.
    """

    def start(self, task: Task) -> Start:
        """Opens a task in its initial state."""

    def step(self, action: str) -> Observation:
        """Takes an action, which may be any text, and returns the result."""


@runtime_checkable
class Forkable(Protocol):
    """An engine that copies its state exactly and cheaply.

    Without it the pool replays the actions and checks every observation.
    """

    def snapshot(self) -> Any:
        """A copy of the current state, valid for this engine object and this task.

        None if the state cannot be copied and must be replayed.
        """

    def restore(self, snapshot: Any) -> Observation:
        """Makes a snapshot's state the current one.

        Returns the observation that was made there. Whatever the engine can observe
        again, it observes anew: the pool refuses a copy if anything differs.
        """


@runtime_checkable
class Retracing(Protocol):
    """An engine that can repeat a known step more cheaply than take a new one."""

    def retrace(self, action: str) -> str:
        """Does what `step` would do, and returns only the text of its observation."""


@runtime_checkable
class Solvable(Protocol):
    """An engine that can compute how to win; the policy `expert` follows it."""

    def plan(self) -> list[str]:
        """Actions that win from the current state, computed from the true state.

        Raises EngineError if there are none.
        """


@runtime_checkable
class Closable(Protocol):
    """An engine that holds a resource: a process, a file, a reference to a library."""

    def close(self) -> None:
        """Releases the resource; the engine is not used again."""


class Verdict(msgspec.Struct, kw_only=True, frozen=True):
    """How good every action would be with a given argument (Rare-tool section 4.1)."""

    scores: dict[str, float]
    """Action -> score from 0 to 10, for every tool of the Toolbox and `cot`."""
    process_ok: bool
    """Whether the step makes sense."""


@runtime_checkable
class Judging(Protocol):
    """An engine that scores the possible next actions without a model."""

    def judge(self, argument: str) -> Verdict:
        """Scores each tool, and a thought, in the current state.

        `argument` is what the tool would be called with. The state does not change.
        """


class World(Protocol):
    """A family of tasks.

    It is made from EnvironmentSettings, cheaply: no engine is imported before
    `engine()` is called.
    """

    @property
    def card(self) -> Card:
        """Facts about the world; also on the class, so that worlds can be listed."""

    def tasks(self, split: str) -> list[Task]:
        """All tasks of a split, in their fixed order, without starting an engine.

        The split is one of the card's. Raises DataError for an unreadable data folder.
        """

    def engine(self) -> Engine:
        """A new engine."""


@runtime_checkable
class Toolbox(Protocol):
    """A world whose actions are calls of tools, written `NAME[argument]`.

    Two actions are not tools: `cot[thought]` continues to think, and `answer[...]` ends
    the episode.
    """

    @property
    def tools(self) -> Mapping[str, str]:
        """Tool name -> one line about it, in the order in which tools are shown."""


@runtime_checkable
class Forejudging(Toolbox, Protocol):
    """A world that scores its tools by their kind, before any is run."""

    def forejudge(self, context: Context, argument: str) -> Verdict:
        """Scores each tool, and a thought, by what the agent itself can know.

        `argument` is what the tool would be called with. Raises UsageError for a task
        of which nothing is known but the answer.
        """


@runtime_checkable
class Guiding(Protocol):
    """A world with too many actions to list; full prompts show these texts instead."""

    @property
    def forms(self) -> str:
        """How actions are written."""

    def sight(self, context: Context) -> str:
        """What actions can refer to now, such as the things in view."""


FINISHED = "done"
"""What a searching expert says if it has nothing left to do before the episode ends.
It then repeats one step until the end; only the first such step is imitated.
"""


class Advice(NamedTuple):
    """A searching expert's next move."""

    tag: str
    """think or explore."""
    sentence: str
    action: str


@runtime_checkable
class Brief(Protocol):
    """A world with a short prompt, from which a policy that knows no words can learn."""

    def compact(self, context: Context) -> str:
        """A short prompt with everything that a decision needs."""

    def vocabulary(self) -> list[str]:
        """Entity names that a tiny tokenizer must keep as single tokens, sorted."""


@runtime_checkable
class Tutor(Brief, Protocol):
    """A world that can teach such a policy: it has a searching expert."""

    @property
    def habits(self) -> type[msgspec.Struct]:
        """Settings of the mistakes that its searching expert makes on purpose.

        Each of them is also a field of `demos`.
        """

    def next(self, context: Context, seed: int, habits: Any) -> Advice:
        """The searching expert's next move, based only on the agent's own history.

        `seed` is the seed of the episode.
        """


@runtime_checkable
class Naming(Protocol):
    """A world with placeholders for the names of things, by type (prompt.names typed).

    The placeholder of a name depends on the task alone, so that it is the same in all
    steps, forks and copies of an episode.
    """

    def typed(self, text: str, context: Context) -> str:
        """The text with placeholders for names."""

    def own(self, text: str, context: Context) -> str:
        """The text with names for placeholders; `own(typed(action))` is the action."""

    def placeholders(self) -> list[str]:
        """Placeholders that a tiny tokenizer must keep as single tokens, sorted."""


class Requisite(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a world can use, and whether this machine has it."""

    name: str
    present: bool
    detail: str
    get: str | None = None
    """The command that installs it; None if there is nothing to do."""


@runtime_checkable
class Inspected(Protocol):
    """A world that looks for its data on this machine (agentcli doctor).

    The methods are static, so no settings are needed.
    """

    @staticmethod
    def requisites(environ: Mapping[str, str]) -> list[Requisite]:
        """The things that the world can use, and whether this machine has them.

        Starts, creates and downloads nothing; does not raise if something is broken.
        """

    @staticmethod
    def cache_folder(environ: Mapping[str, str]) -> Path | None:
        """The folder where the world caches its files; None if it caches none."""


@runtime_checkable
class Serving(Protocol):
    """A world whose server has additional routes (agentcli env serve)."""

    def routes(self) -> "Sequence[BaseRoute]":
        """Starlette's routes: `Route("/retrieve", answer)`; `answer` may be async."""


class Exam(msgspec.Struct, kw_only=True, frozen=True):
    """An answer, together with its question."""

    question: str
    references: tuple[str, ...]
    """The known answers; each of them is right."""
    answer: str


@runtime_checkable
class Examining(Protocol):
    """A world whose tasks are questions with known answers."""

    def exam(self, task: Task, action: str) -> Exam | None:
        """What an action answers to the question of a task.

        None where it is no answer. Raises DataError for a task of other settings.
        """


def options_of(settings: EnvironmentSettings, kind: type[OptionsT]) -> OptionsT:
    """The options, as the world's own type. Raises UsageError naming a wrong option."""
    return read(settings.options, kind, f"{PLACE}.", settings.name)


def world_as(
    world: World,
    capability: type[CapabilityT],
    key: str,
    value: str,
) -> CapabilityT:
    """The world, typed as having the capability that the setting `key` requires.

    Raises UsageError if the world does not have it.
    """
    if isinstance(world, capability):
        return world
    raise UsageError(
        f"{key}: {value} needs a world that is a {capability.__name__}, and "
        f"{world.card.name} is not one; choose another {key}, or "
        "another --env"
    )
