"""One ScienceWorld game behind the Engine protocol, and the splits of its tasks.

Rewards are points: the score goes from 0 to 100, and an episode's rewards add up to it.
Points that a task starts with are part of the first action's reward. Only 100 is
success. The simulator reports -100 if the task can no longer be done, for instance
after focusing on the wrong thing: the episode ends as a failure, with 0 points.

**Exact keys.** Nearly every action lets time pass, and time changes temperatures,
plants and animals. So a state is named by the actions that led to it, except those that
changed nothing: looking around, the inventory, the task, and text that the simulator
cannot parse. Paths that differ only in such actions reach the same state. An action
that is parsed and then refused ("The door is already open.") takes time like any other,
so it leads to a new state. Keys never merge different orders of actions.

**Canonical states** are the room as it looks and the inventory (RewardFlow B.1):
different orders of actions can reach the same one.

**Listed actions** are some of the possible ones, about what the agent sees: enough to
walk, to look at things, to carry them and to name one. All that the simulator would
take are hundreds, and listing them costs more than a step.

**Splits.** The simulator cuts the variations of a task in order: half for training, a
quarter each for development and test. The levels are those of RLVMR, which SPARK and
DPEPO use: without the task use-thermometer, and with the development set as L0.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec

from agentcli.environments.protocol import Observation, Start
from agentcli.errors import DataError
from agentcli.records.types import Task
from agentcli.worlds.scienceworld.simulator import (
    FREE,
    FULL_SCORE,
    ScienceGame,
    Simulator,
    Turn,
    gold_path,
    rest,
)

Part = Literal["train", "dev", "test"]

VARIATIONS = {
    "boil": 30,
    "change-the-state-of-matter-of": 30,
    "chemistry-mix": 32,
    "chemistry-mix-paint-secondary-color": 36,
    "chemistry-mix-paint-tertiary-color": 36,
    "find-animal": 300,
    "find-living-thing": 300,
    "find-non-living-thing": 300,
    "find-plant": 300,
    "freeze": 30,
    "grow-fruit": 126,
    "grow-plant": 126,
    "identify-life-stages-1": 14,
    "identify-life-stages-2": 10,
    "inclined-plane-determine-angle": 168,
    "inclined-plane-friction-named-surfaces": 1386,
    "inclined-plane-friction-unnamed-surfaces": 162,
    "lifespan-longest-lived": 125,
    "lifespan-longest-lived-then-shortest-lived": 125,
    "lifespan-shortest-lived": 125,
    "measure-melting-point-known-substance": 436,
    "measure-melting-point-unknown-substance": 300,
    "melt": 30,
    "mendelian-genetics-known-plant": 120,
    "mendelian-genetics-unknown-plant": 480,
    "power-component": 20,
    "power-component-renewable-vs-nonrenewable-energy": 20,
    "test-conductivity": 900,
    "test-conductivity-of-unknown-substances": 600,
    "use-thermometer": 540,
}
"""Variations of each task, in the simulator's order."""
ALL = tuple(VARIATIONS)
LEVELLED = ALL[:-1]
"""The tasks of the levels."""
NEW_PLACES = (1, 4, 8, 11, 13, 16, 18, 21, 24, 28)
NEW = tuple(ALL[place] for place in NEW_PLACES)
"""The tasks of L2."""
KNOWN = tuple(kind for kind in LEVELLED if kind not in NEW)


class Split(NamedTuple):
    """One part of the variations of some tasks."""

    parts: tuple[Part, ...]
    kinds: tuple[str, ...]


SPLITS = {
    "train": Split(("train",), LEVELLED),
    "L0-train": Split(("train",), LEVELLED),
    "L0": Split(("dev",), LEVELLED),
    "L1-train": Split(("train",), LEVELLED),
    "L1": Split(("test",), LEVELLED),
    "L2-train": Split(("train",), KNOWN),
    "L2": Split(("test",), NEW),
    "all": Split(("train", "dev", "test"), ALL),
}
MEANINGS = {
    "L0-train": "the same as train",
    "L1-train": "the same as train",
    "L0": "known tasks, the variations of the development set",
    "L1": "known tasks, the variations of the test set",
    "L2": "the part of L1 whose tasks L2-train lacks",
    "L2-train": "train without the tasks of L2",
    "all": "every variation of all 30 tasks, use-thermometer too",
}


def variations(kind: str, part: Part) -> range:
    """The variations of a task that belong to a part (PythonInterface.getSets).

    Every task has at least ten.
    """
    count = VARIATIONS[kind]
    quarter = count // 4
    bounds = {
        "train": (0, 2 * quarter),
        "dev": (2 * quarter, 3 * quarter),
        "test": (3 * quarter, min(count, 5 * quarter)),
    }
    return range(*bounds[part])


def tasks_of_split(split: str, world: str, prefix: str) -> list[Task]:
    """The tasks of a split: the first variation of each task, then the second.

    So a panel's first N hold all tasks. An id begins with `prefix`.
    """
    parts, kinds = SPLITS[split]
    ranked = []
    for kind in kinds:
        rank = 0
        for part in parts:
            for variation in variations(kind, part):
                task = Task(
                    id=f"{prefix}/{kind}/{variation}",
                    world=world,
                    split=part,
                    kind=kind,
                    attributes={"variation": str(variation)},
                )
                ranked.append((rank, task))
                rank += 1
    # The sort is stable, so tasks of one rank keep the simulator's order.
    ranked.sort(key=lambda pair: pair[0])
    return [task for _, task in ranked]


MAP = {
    "hallway": (
        *("art studio", "bedroom", "greenhouse", "kitchen", "living room", "workshop"),
    ),
    "kitchen": ("bathroom", "hallway", "outside"),
    "greenhouse": ("hallway", "outside"),
    "outside": ("foundry", "greenhouse", "kitchen"),
    "art studio": ("hallway",),
    "bathroom": ("kitchen",),
    "bedroom": ("hallway",),
    "foundry": ("outside",),
    "living room": ("hallway",),
    "workshop": ("hallway",),
}
"""The rooms beside each room; it is one house in all tasks."""
LOOK_AT = "look at "
GO_TO = "go to "
_DOOR = re.compile(r"A door to the ([a-z ]+) \(that is (open|closed)\)")
_CARRIED = re.compile(r"^\tan? (?:substance called )?(.+?)(?: \(|,|$)", re.MULTILINE)
_PLACES = ("agent", "air", "door", "inventory", *MAP)


def hints(room: str, inventory: str, things: Sequence[str]) -> tuple[str, ...]:
    """Actions in a fixed order: ways out, each thing in sight, each thing carried.

    `room` and `inventory` are the simulator's texts, `things` its names for what is in
    sight.
    """
    listed = ["look around", "inventory"]
    for name, state in _DOOR.findall(room):
        listed.append(f"{GO_TO}{name}" if state == "open" else f"open door to {name}")
    named = [thing for thing in things if not _is_place(thing)]
    boxes = [thing for thing in named if thing.endswith(" box")]
    for thing in named:
        listed += [f"{LOOK_AT}{thing}", f"focus on {thing}"]
        if thing not in boxes:
            listed.append(f"pick up {thing}")
    for thing in _CARRIED.findall(inventory):
        listed += [f"{LOOK_AT}{thing}", f"focus on {thing}", f"put down {thing}"]
        listed += [f"move {thing} to {box}" for box in boxes]
    return tuple(listed)


def things_of(hinted: Sequence[str]) -> list[str]:
    """The things that hints are about."""
    looks = [action for action in hinted if action.startswith(LOOK_AT)]
    return [action.removeprefix(LOOK_AT) for action in looks]


def _is_place(thing: str) -> bool:
    return thing in _PLACES or thing.startswith("door ") or thing.endswith(" door")


Simplification = Literal[
    "teleportAction",
    "openDoors",
    "openContainers",
    "noElectricalAction",
    "selfWateringFlowerPots",
    "easy",
]
Megabytes = Annotated[int, msgspec.Meta(ge=128, le=65536)]


class ScienceWorldOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Settings of the world."""

    simplifications: list[Simplification] = msgspec.field(
        default_factory=lambda: ["easy"]
    )
    """What the simulator makes easier. easy, which the papers use, is all but
    openContainers (and keeps wires where a task needs them). Empty: nothing.
    """
    heap_mb: Megabytes = 512
    """Heap of the Java process of each engine process. One with 128 games needs 70 MB;
    where it is full the process ends, and its games are replayed in another.
    """

    @property
    def prefix(self) -> str:
        """Begins the ids of the tasks that these settings make."""
        return "+".join(sorted(set(self.simplifications))) or "plain"

    @property
    def simplification(self) -> str:
        """The simplifications as the simulator reads them."""
        return ",".join(sorted(set(self.simplifications)))


FORMS = {
    "open OBJ": "open a container",
    "close OBJ": "close a container",
    "activate OBJ": "activate a device",
    "deactivate OBJ": "deactivate a device",
    "connect OBJ to OBJ": "connect electrical components",
    "disconnect OBJ": "disconnect electrical components",
    "use OBJ [on OBJ]": "use a device or item",
    "look around": "describe the current room",
    "look at OBJ": "describe an object in detail",
    "look in OBJ": "describe the contents of a container",
    "read OBJ": "read a note or book",
    "move OBJ to OBJ": "move an object into a container",
    "pick up OBJ": "move an object into the inventory",
    "put down OBJ": "drop an object of the inventory",
    "pour OBJ into OBJ": "pour a liquid into a container",
    "dunk OBJ into OBJ": "dunk a container into a liquid",
    "mix OBJ": "mix the contents of a container chemically",
    "go to LOC": "move to a neighbouring location",
    "eat OBJ": "eat food",
    "flush OBJ": "flush a toilet",
    "focus on OBJ": "show that this is the object of the task",
    "wait": "do nothing for 10 ticks of time",
    "wait1": "do nothing for 1 tick of time",
    "task": "repeat the task",
    "inventory": "list what you carry",
}
"""The 25 templates of the papers' prompt (DPEPO Figure 17) and what each does."""

UNKNOWN = "No known action matches that input."
"""The simulator's answer to what it cannot read; no time passes."""
AMBIGUOUS = "Ambiguous request"
"""Begins its answer to what could mean several things; a number answers it."""
OUTSIDE = ("help", "objects", "task")
"""Commands that the simulator answers outside its world."""
LOOKS = ("look", "examine", "inventory", "read", *OUTSIDE)
"""First words of actions that only look."""
LONGEST = 500
"""Characters of an action that is shown to the simulator; none it knows is longer."""
REFUSAL = re.compile(
    r"^(?:"
    r"No known action|Unknown action|I'm not sure|It'?s not clear|<ERROR>|ERROR"
    r"|You can't|That can't|That (?:object|is) .*already|Something can't"
    r"|You must disconnect|That object does not appear|The door doesn't appear"
    r"|The .* (?:is not|isn't|are not|aren't|can't|does not contain)\b"
    r"|The .* is (?:already (?:open|closed|activated|deactivated)|empty, so)"
    r")",
    re.DOTALL,
)
"""The simulator's answers to actions that did nothing (src/.../actions/*.scala)."""


def accepted(text: str) -> bool:
    """Whether the simulator took the action that it answered so."""
    return REFUSAL.match(text) is None


COUNTING = ("identify-life-stages-1", "identify-life-stages-2")
"""Tasks with a goal to stay somewhere, which counts every action that is read."""


class Sight(NamedTuple):
    """What an agent can see of a state without passing time."""

    canonical: str
    actions: tuple[str, ...]


class ScienceWorldEngine:
    """Plays one task at a time; all engines of a process share its simulator."""

    def __init__(self, simulator: Simulator, options: ScienceWorldOptions) -> None:
        self._simulator = simulator
        self._options = options
        self._game: ScienceGame | None = None

    def start(self, task: Task) -> Start:
        """Opens a task. Raises DataError for one of another world or of other options."""
        kind, variation = self._read(task)
        simplification = self._options.simplification
        # A second task takes half the time in the same game.
        self._game = self._game or self._simulator.game()
        self._game.open(kind, variation, simplification)
        self._kind = kind
        self._variation = variation
        self._paid = 0
        self._ticks = 0
        self._past = b""
        self._taken: list[str] = []
        self._sight: Sight | None = None
        # The simulator's own reset looks around as its first step.
        moment = self._game.step("look around")
        self._score = max(moment.score, 0)
        # Its sentences are broken over lines, and begin with "Your task is to".
        sentence = " ".join(self._game.task().split())
        return Start(
            instruction=sentence.removeprefix("Your task is to "),
            observation=self._observe(moment, reward=0.0, taken=True, looked=False),
        )

    def step(self, action: str) -> Observation:
        """The simulator's answer to any text."""
        before = self._score
        # What the reset's look around scored is not paid yet: the first action gets it.
        paid = self._paid
        moment = self._act(action)
        taken = accepted(moment.text)
        word, *_ = action.lower().split(maxsplit=1) or [""]
        # A look that scores (a goal to look at something) is a step like any other.
        looked = word in LOOKS and taken and self._score == before
        return self._observe(moment, float(self._score - paid), taken, looked)

    def retrace(self, action: str) -> str:
        """The text of a step; the agent's sight is not asked for."""
        return self._act(action).text

    def plan(self) -> list[str]:
        """The rest of the simulator's own solution.

        Raises EngineError where the agent has left it.
        """
        simplification = self._options.simplification
        path = gold_path(self._simulator, self._kind, self._variation, simplification)
        return rest(path, self._taken)

    def close(self) -> None:
        """Lets go of the game; the simulator ends with the process."""
        if self._game is not None:
            self._game.close()
        self._game = None

    def _read(self, task: Task) -> tuple[str, int]:
        """The kind and the variation that a task id names."""
        prefix, _, place = task.id.partition("/")
        kind, _, number = place.rpartition("/")
        # Text against text: "01" or "+1" would be another id of the same task.
        is_known = number in map(str, range(VARIATIONS.get(kind, 0)))
        if prefix != self._options.prefix or not is_known:
            raise DataError(
                f"task {task.id}: these environment.options make tasks such as "
                f"{self._options.prefix}/boil/0; use the simplifications of its panel"
            )
        return kind, int(number)

    def _act(self, action: str) -> Turn:
        """Acts, and keeps what a state is made of."""
        assert self._game is not None
        # What the simulator should not see is answered as what it cannot parse.
        moment = Turn(UNKNOWN, self._score, self._ticks)
        if len(action) <= LONGEST and action.isprintable():
            moment = self._game.step(action)
        changed = self._has_changed(moment, action)
        # A plan may hold actions that change nothing; they count as done, too.
        if changed or action in FREE:
            self._taken.append(action)
        if changed:
            text = " ".join(action.lower().split()).encode(errors="surrogatepass")
            # A chain of digests: the key grows with no episode, and tells orders apart.
            past = hashlib.blake2b(text, key=self._past, digest_size=16)
            self._past = past.digest()
            self._ticks = moment.ticks
            self._sight = None
        # -100 is a sign and no score: such an episode ends with 0 points.
        self._score = max(moment.score, 0)
        self._paid = self._score
        return moment

    def _has_changed(self, moment: Turn, action: str) -> bool:
        """Whether the state may be another one."""
        # After an ambiguous request a number is an answer, though no tick has passed.
        if moment.ticks != self._ticks or moment.text.startswith(AMBIGUOUS):
            return True
        if moment.text.startswith(UNKNOWN):
            return False
        # The goal counts these tasks' actions although no tick passes.
        outside = action.strip().lower() in OUTSIDE
        return self._kind in COUNTING and not outside

    def _see(self) -> Sight:
        """What the agent sees; the simulator is asked once in a state."""
        if self._sight is None:
            assert self._game is not None
            room = self._game.look()
            inventory = self._game.inventory()
            possible = hints(room, inventory, self._game.things())
            self._sight = Sight(f"{room}\n{inventory}", possible)
        return self._sight

    def _observe(
        self, moment: Turn, reward: float, taken: bool, looked: bool
    ) -> Observation:
        sight = self._see()
        end: Literal["success", "failure"] | None = None
        if moment.score >= FULL_SCORE:
            end = "success"
        # The simulator reports -100 where the task can no longer be done.
        elif moment.score < 0:
            end = "failure"
        return Observation(
            text=moment.text,
            actions=sight.actions,
            state=f"[tick] {self._ticks}\n[past] {self._past.hex() or 'none'}",
            canonical=sight.canonical,
            accepted=taken,
            looked=looked,
            reward=reward,
            end=end,
        )
