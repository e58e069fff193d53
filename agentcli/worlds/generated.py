"""What generated worlds share: draws, splits, names, and engines of one value."""

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from agentcli.environments.protocol import PLACE, Observation
from agentcli.errors import DataError, UsageError
from agentcli.records.calls import ANSWER, COT, ToolCall, read_call
from agentcli.records.files import derive_seed
from agentcli.records.section import Share
from agentcli.records.types import Task
from agentcli.registry import nearest

StateT = TypeVar("StateT")
Number = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]

SPLITS = {"train": range(0, 70), "valid": range(70, 80), "test": range(80, 100)}
"""Split -> the texts that it holds, by their numbers."""

STARTS = (
    *("b", "br", "c", "d", "dr", "f", "g", "gr", "h", "k", "kl", "l", "m", "n", "p"),
    *("pr", "qu", "r", "s", "st", "t", "tr", "v", "w", "z"),
)
VOWELS = ("a", "e", "i", "o", "u", "ai", "ei", "ou")
MIDDLES = (
    *("b", "d", "l", "ll", "m", "n", "nd", "r", "rv", "s", "st", "t", "th", "v", "x"),
)


class SplitSizes(msgspec.Struct, kw_only=True, frozen=True):
    """Games of each split, of worlds that draw them one by one."""

    train: Number = 2000
    valid: Number = 100
    test: Number = 200


class Habits(msgspec.Struct, kw_only=True, frozen=True):
    """The faults that an expert has on purpose: headroom for reinforcement learning.

    Shares, of what a world's class says. Each is also a field of `demos`.
    """

    forget: Share = 0.0
    overlook: Share = 0.0
    wander: Share = 1.0


def indulges(habits: Any, habit: str, episode_seed: int) -> bool:
    """Whether an expert has a habit in this episode, by the share that its field gives."""
    share: float = getattr(habits, habit)
    return _chance(episode_seed, habit) < share


@lru_cache(maxsize=65536)
def _chance(episode_seed: int, habit: str) -> float:
    """A number in [0, 1) that is drawn once per episode and habit."""
    return random.Random(derive_seed(episode_seed, habit)).random()


def strikes(share: float, *occasion: Any) -> bool:
    """True for a fixed `share` of occasions, chosen by hash."""
    # derive_seed is uniform over 64 bits, so this needs no generator of its own.
    return derive_seed(*occasion) < share * 2.0**64


def chosen(
    wanted: Sequence[str] | None, known: Collection[str], option: str, thing: str
) -> list[str]:
    """The names that an option lists, or all of them. Raises UsageError for an unknown."""
    if wanted is None:
        return list(known)
    for name in wanted:
        if name not in known:
            hint = nearest(name, known)
            raise UsageError(f"{PLACE}.{option}: no {thing} {name!r}; {hint}")
    return list(wanted)


def foreign_task(task: Task) -> DataError:
    """The refusal of a task that other settings made, as a panel may hold."""
    return DataError(
        f"task {task.id}: it is none of these environment.options and --data; use "
        "those of its panel"
    )


def drawn_tasks(
    digest: str, split: str, world: str, kinds: Iterable[str], **attributes: str
) -> list[Task]:
    """The tasks of a split, one of each kind, with the ids DIGEST/SPLIT/NUMBER."""
    tasks = []
    for number, kind in enumerate(kinds):
        task = Task(
            id=f"{digest}/{split}/{number}",
            world=world,
            split=split,
            kind=kind,
            attributes=dict(attributes),
        )
        tasks.append(task)
    return tasks


def drawn_as(task: Task, digest: str) -> tuple[str, int]:
    """The split and the number of a task with such an id.

    Raises DataError for a task of other settings.
    """
    prefix, _, rest = task.id.partition("/")
    split, _, number = rest.partition("/")
    if prefix != digest or split not in SPLITS or not number.isdecimal():
        raise foreign_task(task)
    return split, int(number)


def spelled(name: str, argument: str) -> str:
    """A call in tokens that stand apart, as a policy of whole words writes it."""
    return f"{name} [ {argument} ]"


def split_number(text: str) -> int:
    """The fixed number of a text, from 0 to 99; each split has a range of them."""
    # hash() of a text differs from process to process.
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") % 100


def split_of(text: str) -> str:
    """The split that a text belongs to."""
    number = split_number(text)
    return next(split for split, numbers in SPLITS.items() if number in numbers)


def invented_names(
    rng: random.Random, taken: set[str], ending: str, number: int
) -> tuple[str, ...]:
    """Names that no model has read about, sorted.

    Each ends with `ending`, or with a random syllable if it is empty. `taken`, in lower
    case, is extended.
    """
    names: list[str] = []
    while len(names) < number:
        parts = [rng.choice(STARTS), rng.choice(VOWELS), rng.choice(MIDDLES)]
        parts.append(ending or rng.choice(VOWELS) + rng.choice("lmnrst"))
        name = "".join(parts).capitalize()
        if name.lower() not in taken:
            taken.add(name.lower())
            names.append(name)
    return tuple(sorted(names))


class StateEngine(ABC, Generic[StateT]):
    """An engine whose state is one value, replaced and never changed: it is Forkable."""

    _now: StateT

    def snapshot(self) -> StateT:
        return self._now

    def restore(self, snapshot: StateT) -> Observation:
        """Goes back to a state, in which nothing is asked or computed again."""
        self._now = snapshot
        return self._observe()

    @abstractmethod
    def _observe(self) -> Observation:
        """What is seen in the present state, and how the action before was taken."""


class CallEngine(StateEngine[StateT]):
    """A StateEngine whose actions are calls of tools, thoughts, and an answer.

    `actions` stays empty: arguments are free texts, and a list would bind the agent to
    it (prompts/full.py).
    """

    _called: Mapping[str, object]
    """The tools by name."""
    _unknown: str
    """What is said of another name, with {name}."""

    def step(self, action: str) -> Observation:
        """Runs a tool, thinks on, or takes the answer; any other text is not accepted."""
        call = read_call(action)
        if call is None:
            self._tell("This is not a call; write NAME[argument].", accepted=False)
        elif call.name == ANSWER:
            self._end(call.argument)
        elif call.name == COT:
            self._tell("You think on.", looked=True)
        elif call.name in self._called:
            self._call(call)
        else:
            text = self._unknown.format(name=repr(call.name[:40]))
            self._tell(text, accepted=False)
        return self._observe()

    @abstractmethod
    def _tell(self, text: str, *, accepted: bool = True, looked: bool = False) -> None:
        """Shows a text where nothing changes."""

    @abstractmethod
    def _end(self, answer: str) -> None:
        """Takes the answer."""

    @abstractmethod
    def _call(self, call: ToolCall) -> None:
        """Runs a tool."""
