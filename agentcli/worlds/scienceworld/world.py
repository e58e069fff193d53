"""ScienceWorld: thirty tasks of school science in a house of ten rooms.

The simulator of Wang et al. (2022) runs as it was published, in a Java process of each
engine process. Tasks are listed without it.

The tutor, for policies from scratch, knows the four tasks of finding a thing and
bringing it to a box: find-animal, find-living-thing, find-non-living-thing and
find-plant as far as an animal will do. It searches by its own eyes: the map of the
house is known, what stands where is not.
"""

import random
import re
from collections import deque
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from agentcli.environments.cache import cache_folder
from agentcli.environments.protocol import (
    FINISHED,
    Advice,
    Card,
    Context,
    Requisite,
    options_of,
)
from agentcli.errors import DataError
from agentcli.records.files import derive_seed
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.generated import Habits, indulges, strikes
from agentcli.worlds.scienceworld.engine import (
    FORMS,
    GO_TO,
    MAP,
    MEANINGS,
    SPLITS,
    ScienceWorldEngine,
    ScienceWorldOptions,
    tasks_of_split,
    things_of,
)
from agentcli.worlds.scienceworld.simulator import Simulator, java_here

ANIMALS = (
    *("baby baby beaver", "baby baby wolf", "blue jay", "butterfly", "butterfly egg"),
    *("common toad", "crocodile", "dove", "egg frog", "egg giant tortoise"),
    *("egg parrot", "egg turtle"),
)
GOODS = (
    *("axe", "bowl", "chair", "drawing", "jug", "lighter", "painting", "picture"),
    *("shovel", "soap", "stopwatch", "thermometer"),
)
"""Non-living things that can be carried."""
BOXES = ("blue", "green", "orange", "purple", "red", "yellow")
SEARCH = {
    "animal": "outside",
    "living thing": "outside",
    "non-living thing": "kitchen",
}
"""Where such a thing is likely to be."""
_TASK = re.compile(
    r"find a\(n\) ([a-z-]+(?: thing)?)\. .* the (\w+) box in the ([a-z ]+)"
)
_ROOM = re.compile(r"called the ([a-z ]+?)\.|^You (?:move|teleport) to the ([a-z ]+)\.")


class ScienceWorldHabits(Habits, frozen=True):
    """The faults that the expert has on purpose.

    Of episodes, `forget` never focuses on what it brings, and `overlook` takes the
    first thing it sees, of whatever kind; of rooms, `wander` leaves by any door while it
    searches, and not by the nearest way.
    """


class Errand(NamedTuple):
    """The task sentence in parts."""

    kind: str
    box: str
    room: str


class Awareness(NamedTuple):
    """An agent's knowledge from its own past."""

    goal: Errand
    at: str
    ways: tuple[str, ...]
    sight: tuple[str, ...]
    """Things that it knows by name."""
    holding: str
    focused: str


def awareness_of(context: Context) -> Awareness:
    """Reads a context. Raises DataError for a task that this tutor does not know."""
    goal = _goal(context.instruction)
    texts = context.own
    at = _room(texts[0]) or "hallway"
    holding = focused = ""
    for action, text in zip(context.actions, texts[1:], strict=True):
        at = _room(text) or at
        verb, _, thing = action.partition(" on ")
        if verb == "focus" and text.startswith("You focus"):
            focused = thing
        if action.startswith("pick up ") and text.startswith("You move"):
            holding = action.removeprefix("pick up ")
        elif holding and action.startswith(("move ", "put down ")):
            holding = "" if text.startswith("You move") else holding
    ways = [act for act in context.admissible if act.startswith(GO_TO)]
    known = {*ANIMALS, *GOODS, f"{goal.box} box"}
    sight = [thing for thing in things_of(context.admissible) if thing in known]
    return Awareness(
        goal=goal,
        at=at,
        ways=tuple(way.removeprefix(GO_TO) for way in ways),
        sight=tuple(dict.fromkeys(sight)),
        holding=holding,
        focused=focused,
    )


def compact(context: Context) -> str:
    """The task, where the agent is, what it sees, and what it did, in 40 words."""
    aware = awareness_of(context)
    goal = aware.goal
    lines = [
        f"find {goal.kind}",
        f"to {goal.box} box {goal.room}",
        f"at {aware.at}",
        f"ways {' , '.join(aware.ways)}",
        f"see {' , '.join(aware.sight) or 'nothing'}",
        f"hold {aware.holding or 'nothing'}",
        f"focus {aware.focused or 'nothing'}",
    ]
    if context.actions:
        lines.append(f"last {context.actions[-1] or 'nothing'}")
        lines.append("done" if context.observations[-1].startswith("You") else "no")
    return "\n".join(lines)


def vocabulary() -> list[str]:
    """Rooms, things and boxes, as whole tokens."""
    boxes = [f"{colour} box" for colour in BOXES]
    kinds = [*SEARCH, "plant"]
    return sorted({*MAP, *ANIMALS, *GOODS, *boxes, *kinds})


def advise(context: Context, seed: int, habits: ScienceWorldHabits) -> Advice:
    """The next move."""
    aware = awareness_of(context)
    goal = aware.goal
    box = f"{goal.box} box"
    forgets = indulges(habits, "forget", seed)
    if aware.holding:
        if aware.at != goal.room:
            way = _way(aware.at, goal.room)
            return Advice("think", f"carry to {goal.room}", f"{GO_TO}{way}")
        held = f"{aware.holding} in inventory"
        return Advice("think", "into the box", f"move {held} to {box}")
    # What was brought is gone from the hands; only the past tells that it was.
    if any(action.endswith(f" to {box}") for action in context.actions):
        return Advice("think", FINISHED, "look around")
    if aware.focused and aware.focused in aware.sight:
        return Advice("think", "take it", f"pick up {aware.focused}")
    careless = indulges(habits, "overlook", seed)
    thing = _choice(aware, careless, seed)
    if thing and forgets:
        return Advice("think", "take it", f"pick up {thing}")
    if thing:
        return Advice("think", f"a {goal.kind}", f"focus on {thing}")
    return _search(context, aware, seed, habits.wander)


def _choice(aware: Awareness, careless: bool, seed: int) -> str:
    """The thing in sight to bring, "" without one."""
    wanted = GOODS if aware.goal.kind == "non-living thing" else ANIMALS
    things = [thing for thing in aware.sight if careless or thing in wanted]
    if not things:
        return ""
    # Seeded by what is in sight and not by the step: the choice stands.
    rng = random.Random(derive_seed(seed, "choice", *things))
    # A careless expert would otherwise carry off the box itself.
    return rng.choice([thing for thing in things if not thing.endswith(" box")] or [""])


def _search(context: Context, aware: Awareness, seed: int, wander: float) -> Advice:
    """On to where such a thing is likely to be, or through any door."""
    target = SEARCH.get(aware.goal.kind, "outside")
    step = len(context.actions)
    strays = strikes(wander, "wander", seed, step)
    way = _way(aware.at, target)
    if aware.ways and (strays or way not in aware.ways):
        way = random.Random(derive_seed("way", seed, step)).choice(aware.ways)
    if way not in aware.ways:
        return Advice("explore", "look", "look around")
    return Advice("explore", f"search {target}", f"{GO_TO}{way}")


@lru_cache
def _way(start: str, target: str) -> str:
    """The first room on the shortest way; "" at the target."""
    first = {start: ""}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        if here == target:
            return first[here]
        for room in MAP.get(here, ()):
            if room not in first:
                first[room] = first[here] or room
                queue.append(room)
    return ""


@lru_cache
def _goal(instruction: str) -> Errand:
    match = _TASK.search(instruction)
    if match is None:
        raise DataError(
            f"{instruction[:60]!r}: the tutor of scienceworld knows only the tasks "
            "find-*; choose them with --where kind=find-animal, or --set prompt.style=full"
        )
    return Errand(*match.groups())


def _room(text: str) -> str:
    match = _ROOM.search(text)
    return (match[1] or match[2]) if match else ""


HOW_TO_ACT = "Actions you may take, with an object for OBJ and a location for LOC:"


class ScienceWorldWorld:
    """A World over the simulator, its Tutor, and Guiding."""

    card = Card(
        name="scienceworld",
        role="You are an expert agent operating in the ScienceWorld environment.",
        splits=tuple(SPLITS),
        evaluation_split="L0",
        meanings=MEANINGS,
        new_kinds=("L2",),
        exploring=("go", "open"),
        best_reward=100.0,
        extra="scienceworld",
    )
    habits = ScienceWorldHabits
    compact = staticmethod(compact)
    vocabulary = staticmethod(vocabulary)
    next = staticmethod(advise)

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, ScienceWorldOptions)

    @staticmethod
    def requisites(environ: Mapping[str, str]) -> list[Requisite]:
        return [java_here(environ)]

    @staticmethod
    def cache_folder(environ: Mapping[str, str]) -> Path:
        return cache_folder(environ, "scienceworld")

    def tasks(self, split: str) -> list[Task]:
        """The tasks of a split; kind is the task, `variation` its number."""
        return tasks_of_split(split, self.card.name, self.options.prefix)

    def engine(self) -> ScienceWorldEngine:
        """A new engine; all engines of a process share one simulator."""
        return ScienceWorldEngine(self.simulator, self.options)

    @cached_property
    def simulator(self) -> Simulator:
        return Simulator(self.options.heap_mb)

    def close(self) -> None:
        self.simulator.close()

    @property
    def forms(self) -> str:
        """The papers' 25 templates (DPEPO Figure 17)."""
        lines = [f"- {form}: {effect}" for form, effect in FORMS.items()]
        return "\n".join([HOW_TO_ACT, *lines])

    def sight(self, context: Context) -> str:
        """The things around the agent, and those it carries."""
        things = ", ".join(things_of(context.admissible))
        return f"Objects in sight: {things or 'none'}"
