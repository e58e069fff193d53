"""Placeholders for ALFWorld's names by what things do (prompt.names typed).

    locker    a receptacle that opens          heater, cooler, washer   what treats
    surface   any other receptacle             lamp                     what lights
    goal      the task's own receptacle        target, thing            the task's own
              where it is no appliance                                  objects, others

So a task in an unseen room has the words of the rooms that were trained in. Receptacles
are numbered through the room, as its first description lists them: the drawers after
the cabinets. The numbers of things go over all kinds, turned from task to task, so that
none tells a kind. The task and its first observation decide a name's placeholder,
which is therefore the same in every step, fork and copy.
"""

import re
from functools import lru_cache

import msgspec

from agentcli.environments.protocol import Context
from agentcli.records.files import derive_seed
from agentcli.worlds.alfworld.draw import TOOLS, constants, fits
from agentcli.worlds.alfworld.names import type_of
from agentcli.worlds.alfworld.planner import Goal
from agentcli.worlds.alfworld.search import goal_of, parse

APPLIANCES = {"heat": "heater", "cool": "cooler", "clean": "washer"}
"""Verb of a tool step -> the word for what does it."""
FULLEST = {
    "cooler": 1,
    "goal": 28,
    "heater": 1,
    "lamp": 2,
    "locker": 42,
    "surface": 20,
    "target": 4,
    "thing": 77,
    "washer": 2,
}
"""Placeholder -> how many a room of AI2-THOR needs at most."""
_NAME = re.compile(r"([a-z]+)(?: ([1-9]\d{0,8})\b)?")
"""A word, with its number if it has one; Python refuses to convert very long numbers."""


class Word(msgspec.Struct, frozen=True):
    """One placeholder and its numbers: each stands for one own name or for nothing."""

    room: tuple[str, ...]
    """Own names that the first numbers stand for."""
    kinds: tuple[str, ...]
    """Kinds of the further names: first every kind's 1, then every kind's 2, ..."""
    shift: int
    """How far `kinds` is turned."""

    def number(self, kind: str, own: int) -> int:
        """The placeholder's number of an own name."""
        name = f"{kind} {own}"
        if name in self.room:
            return self.room.index(name) + 1
        count = len(self.kinds)
        place = (self.kinds.index(kind) + self.shift) % count
        return len(self.room) + (own - 1) * count + place + 1

    def name(self, number: int) -> str | None:
        """The own name that a number stands for, if any."""
        further = number - len(self.room) - 1
        if further < 0:
            return self.room[number - 1]
        lap, place = divmod(further, len(self.kinds))
        kind = self.kinds[(place - self.shift) % len(self.kinds)]
        name = f"{kind} {lap + 1}"
        # A name of the room has its number among the first already.
        return None if name in self.room else name


def _word_of(kind: str, goal: Goal) -> str:
    """The placeholder for a kind under AI2-THOR's name."""
    # First, because fridge and microwave open as well, and may be the goal.
    for tool in TOOLS.values():
        if kind == tool.receptacle:
            return APPLIANCES[tool.verb]
    if kind in constants().VAL_ACTION_OBJECTS["Toggleable"]:
        return "lamp"
    if kind not in fits():
        return "target" if kind.lower() == goal.object else "thing"
    if kind.lower() == goal.place:
        return "goal"
    return "locker" if kind in constants().OPENABLE_CLASS_SET else "surface"


@lru_cache(maxsize=1024)
def _kinds(goal: Goal) -> dict[str, str]:
    """Kind in lower case -> its placeholder."""
    # A set's order changes with the hash seed, and the numbers follow this one.
    kinds = sorted({*constants().OBJECTS, *fits()})
    return {kind.lower(): _word_of(kind, goal) for kind in kinds}


# Every prompt and every answer of an episode asks again.
@lru_cache(maxsize=1024)
def _words(task: str, goal: Goal, first: str) -> dict[str, Word]:
    """Placeholder -> its numbers, in a task with this first observation."""
    places: list[str] = []
    for event, _, things in parse(first):
        if event == "room":
            places += things
    places.sort(key=_in_order)
    kinds = _kinds(goal)
    words = {}
    for word in FULLEST:
        room = tuple(name for name in places if kinds.get(type_of(name)) == word)
        alike = tuple(kind for kind in kinds if kinds[kind] == word)
        shift = 0
        if word == "thing":
            shift = derive_seed("placeholders", task) % len(alike)
        words[word] = Word(room, alike, shift)
    return words


def _in_order(name: str) -> tuple[str, int]:
    kind, _, number = name.partition(" ")
    return kind, int(number)


def typed(text: str, context: Context) -> str:
    """The text with a placeholder for every name, and for every kind without number."""
    goal = goal_of(context)
    kinds = _kinds(goal)
    words = _words(context.task.id, goal, context.observations[0])

    def placeholder(match: re.Match[str]) -> str:
        kind, number = match.groups()
        word = kinds.get(kind)
        if word is None:
            return match[0]
        if number is None:
            return word
        return f"{word} {words[word].number(kind, int(number))}"

    return _NAME.sub(placeholder, text)


def own(text: str, context: Context) -> str:
    """The text with the own name for every placeholder that stands for one."""
    words = _words(context.task.id, goal_of(context), context.observations[0])

    def name(match: re.Match[str]) -> str:
        word, number = match.groups()
        # Without a kind (no second goal place, say) no number stands for anything.
        if number is None or word not in words or not words[word].kinds:
            return match[0]
        return words[word].name(int(number)) or match[0]

    return _NAME.sub(name, text)


def placeholders() -> list[str]:
    """Every placeholder with the numbers that a room of AI2-THOR can need, sorted."""
    names = []
    for word, count in FULLEST.items():
        names += [f"{word} {number}" for number in range(1, count + 1)]
    return sorted(names)
