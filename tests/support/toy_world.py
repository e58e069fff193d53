"""A corridor to play in tests: deterministic, quick, needs nothing, and breaks on request.

Rooms 0..length-1 in a row. "go east" and "go west" move; a locked corridor (every second task) needs "take key" in room 0 before
its last room opens. Reaching the last room wins (reward 1). Room 1 has a pit: "jump" ends the episode there without success.
"look" and anything inadmissible change nothing. Use it as `EnvironmentSettings(name="toy_world:ToyWorld", options={...})`.
"""

import os
import sys
import threading
from collections import Counter, deque
from itertools import repeat
from typing import Any, Literal

import msgspec
from agentcli.environments.protocol import Advice, Card, Context, Observation, Picture, Start
from agentcli.errors import EngineError, UsageError, WriteError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from drawn import bad, square

Fault = Literal[
    "raise",
    "exit",
    "leave",
    "abort",
    "hang",
    "stuck",
    "slow",
    "drift",
    "secret",
    "print",
    "bad",
    "greed",
    "full",
    "long",
    "astray",
]


class ToyOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """environment.options of the toy world."""

    tasks: int = 8
    """Tasks of each split."""
    length: int = 4
    """Rooms of the shortest corridor; task i has i % 3 more."""
    snapshots: bool = True
    fault: Fault | None = None
    """What goes wrong in the tasks `fault_tasks` when `fault_action` is executed. drift: the second time the task is opened in
    one process, the answer to `fault_action` reads differently. secret: only its state key does. bad: the engine answers
    what the protocol forbids. stuck: C code that lets no other thread run. greed: more memory than there is. full: no room
    for a file. long: a text of a million characters. astray: whatever the action, a restored copy is one room further."""
    fault_tasks: list[str] = []
    fault_action: str = "go west"
    once: str | None = None
    """A file that the first fault makes. Where it is there nothing goes wrong any more, whichever process is asked."""
    pictures: bool = False
    """Every observation has a picture: a square as light as the number of its room."""
    picture_fault: str | None = None
    """What is wrong with the pictures of room 1 (drawn.bad)."""
    setup_fault: Literal["missing", "exit"] | None = None
    """What goes wrong when an engine is made."""


class ToyHabits(msgspec.Struct, frozen=True):
    """The toy's searching expert has the habits of the real one, and does not act on them."""

    forget: float = 0.0
    overlook: float = 0.0
    wander: float = 1.0


class ToyWorld:
    """A World and Tutor over corridors."""

    card = Card(name="toy", role="You are an agent in a corridor.", splits=("train", "test"), evaluation_split="test")
    habits = ToyHabits

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = msgspec.convert(settings.options, ToyOptions)
        self.openings: Counter[str] = Counter()

    def tasks(self, split: str) -> list[Task]:
        if split not in self.card.splits:
            raise UsageError(f"--split {split}: toy has {', '.join(self.card.splits)}")
        return [self.task(split, index) for index in range(self.options.tasks)]

    def task(self, split: str, index: int) -> Task:
        length = self.options.length + index % 3
        return Task(
            id=f"{split}/{index}",
            world=self.card.name,
            split=split,
            kind=("open", "locked")[index % 2],
            attributes={"length": str(length)},
        )

    def engine(self) -> "ToyEngine":
        if self.options.setup_fault == "missing":
            raise ModuleNotFoundError("No module named 'corridors'", name="corridors")
        if self.options.setup_fault == "exit":
            os._exit(3)
        return ToyEngine(self)

    def compact(self, context: Context) -> str:
        return f"{context.instruction} {context.observations[-1]}"

    def vocabulary(self) -> list[str]:
        return sorted({"corridor", "door", "key", "pit", "room"})

    def next(self, context: Context, seed: int, habits: ToyHabits) -> Advice:
        if "a key" in context.observations[-1]:
            return Advice("explore", "A key may open something.", "take key")
        return Advice("think", "The exit is in the east.", "go east")


class ToyEngine:
    """The Engine protocol; the whole state is (room, key, ended)."""

    def __init__(self, world: ToyWorld) -> None:
        self.world = world
        self.snapshots = world.options.snapshots

    def start(self, task: Task) -> Start:
        self.task = task
        self.last = int(task.attributes["length"]) - 1
        self.room, self.key, self.ended, self.secret = 0, False, False, ""
        self.world.openings[task.id] += 1
        self.opening = self.world.openings[task.id]
        return Start(instruction=f"Reach room {self.last}.", observation=self._look("You wake up."))

    def step(self, action: str) -> Observation:
        note = self._fault() if self._faulty(action) else ""
        if self._faulty(action) and self.world.options.fault == "bad":
            return Observation(text="", state=0)  # type: ignore[arg-type]
        if self.ended or action not in self._admissible():
            return self._look("Nothing happens.", accepted=False)
        if action == "jump":
            self.ended = True
            return self._look("You fall into the pit.")
        if action == "take key":
            self.key = True
        elif action != "look":
            self.room += 1 if action == "go east" else -1
        self.ended = self.room == self.last
        return self._look(f"You {action}.{note}", looked=action == "look")

    def snapshot(self) -> Any:
        return (self.room, self.key, self.ended, self.event) if self.snapshots else None

    def restore(self, snapshot: Any) -> Observation:
        self.room, self.key, self.ended, event = snapshot
        if self.world.options.fault == "astray" and self.task.id in self.world.options.fault_tasks:
            self.room += 1
        return self._look(*event)

    def plan(self) -> list[str]:
        if self.ended:
            raise EngineError("no plan wins from here")
        fetch = self.task.kind == "locked" and not self.key
        return (
            ["go west"] * self.room * fetch
            + ["take key"] * fetch
            + ["go east"] * (self.last if fetch else self.last - self.room)
        )

    def close(self) -> None:
        self.ended = True

    def _admissible(self) -> tuple[str, ...]:
        if self.ended:
            return ()
        barred = self.task.kind == "locked" and not self.key and self.room == self.last - 1
        possible = {
            "go east": not barred,
            "go west": self.room > 0,
            "jump": self.room == 1,
            "look": True,
            "take key": self.task.kind == "locked" and not self.key and self.room == 0,
        }
        return tuple(action for action, holds in possible.items() if holds)

    def _look(self, text: str, accepted: bool = True, looked: bool = False) -> Observation:
        self.event = (text, accepted, looked)
        won = self.room == self.last
        things = " Here is a key." if "take key" in self._admissible() else ""
        return Observation(
            text=f"{text} This is room {self.room}.{things}",
            actions=self._admissible(),
            state=f"room={self.room} key={self.key:d} ended={self.ended:d}{self.secret}",
            accepted=accepted,
            looked=looked,
            reward=float(won),
            end=("success" if won else "failure") if self.ended else None,
            pictures=self._pictures(),
        )

    def _pictures(self) -> tuple[Picture, ...]:
        options = self.world.options
        if options.picture_fault and self.room == 1:
            return tuple(map(Picture, bad(options.picture_fault)))
        return (Picture(square(self.room)),) if options.pictures else ()

    def _faulty(self, action: str) -> bool:
        options = self.world.options
        if options.once is not None and os.path.exists(options.once):
            return False
        return self.task.id in options.fault_tasks and action == options.fault_action

    def _fault(self) -> str:
        if self.world.options.once is not None:
            os.close(os.open(self.world.options.once, os.O_CREAT))
        match self.world.options.fault:
            case "raise":
                raise ValueError("the lamp broke")
            case "leave":
                sys.exit(3)
            case "exit":
                os.write(2, b"out of lamp oil\n")
                os._exit(7)
            case "abort":
                os.abort()
            case "hang":
                threading.Event().wait()
            case "stuck":
                deque(repeat(None), maxlen=0)
            case "greed":
                bytes(1 << 60)
            case "full":
                raise WriteError("/games: cannot be used (No space left on device); make room there")
            case "long":
                return " and so on" * 100_000
            case "slow":
                threading.Event().wait(0.2)
            case "drift" if self.opening > 1:
                return " Again."
            case "secret" if self.opening > 1:
                self.secret = " secret"
            case "print":
                print("a library that prints", flush=True)
        return ""
