"""What an agent knows from its own past: the texts it saw, parsed and folded into one
picture of the room.

Both the searching expert and the compact prompt read this picture and nothing else of
the game. The patterns are those of the text grammar alfred.twl2. A single text is
parsed once and remembered; folding an episode is a walk over small tuples.
"""

import re
from functools import lru_cache

import msgspec

from agentcli.environments.alfworld.goal import Goal, goal_of_task, parse_instruction
from agentcli.environments.protocol import Context
from agentcli.errors import DataError

Event = tuple[str, str, tuple[str, ...]]
"""(what happened, the receptacle or tool it concerns or "", the objects it concerns).
"""

_ENTITY = re.compile(r"[a-z]+ \d+")
_LISTED = re.compile(r"\ban? ([a-z]+ \d+)")
_THING = r"([a-z]+ \d+)"
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (event, re.compile(pattern))
    for event, pattern in (
        ("room", r"Looking quickly around you, you see (?P<list>[^.]*)\."),
        ("facing", r"You are facing the (?P<list>[^.]*)\. Next to it"),
        ("arrive", rf"You arrive at (?P<place>{_THING})\."),
        (
            "see",
            rf"(?:On the |The )(?P<place>{_THING})(?: is open\. In it)?, you see (?P<list>[^.]*)\.",
        ),
        ("closed", rf"The (?P<place>{_THING}) is closed\."),
        ("open", rf"You open the (?P<place>{_THING})\."),
        ("close", rf"You close the (?P<place>{_THING})\."),
        ("take", rf"You pick up the (?P<list>{_THING}) from the (?P<place>{_THING})\."),
        (
            "put",
            rf"You (?:move|put) the (?P<list>{_THING}) (?:to|in/on) the (?P<place>{_THING})\.",
        ),
        ("clean", rf"You clean the (?P<list>{_THING}) using the (?P<place>{_THING})\."),
        ("heat", rf"You heat the (?P<list>{_THING}) using the (?P<place>{_THING})\."),
        ("cool", rf"You cool the (?P<list>{_THING}) using the (?P<place>{_THING})\."),
        ("use", rf"You turn on the (?P<list>{_THING})\."),
        ("carry", r"You are carrying: (?P<list>[^.]*)\."),
        ("empty", r"You are not carrying anything\."),
        ("idle", r"Nothing happens\."),
    )
)


@lru_cache(maxsize=65536)
def parse(text: str) -> tuple[Event, ...]:
    """The events one observation reports, in the order of the patterns above; empty for
    a text that says nothing new.
    """
    found: list[Event] = []
    for event, pattern in _PATTERNS:
        match = pattern.search(text)
        if match:
            groups = match.groupdict()
            words = groups.get("list") or ""
            things = (_ENTITY if event == "facing" else _LISTED).findall(words)
            found.append(
                (
                    event,
                    groups.get("place") or "",
                    tuple(things or _ENTITY.findall(words)),
                )
            )
    return tuple(found)


class Knowledge(msgspec.Struct):
    """The room as the agent's past shows it."""

    places: dict[str, None] = msgspec.field(default_factory=dict)
    """Receptacles known to exist, in the order they were named."""
    at: str = ""
    """The receptacle last arrived at; "" in the middle of the room."""
    visited: dict[str, int] = msgspec.field(default_factory=dict)
    """Receptacle -> number of the step after which the agent last arrived there."""
    seen: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Receptacle -> what lies in it, as last seen and since changed by the agent."""
    shut: set[str] = msgspec.field(default_factory=set)
    """Receptacles known to be closed."""
    holding: str = ""
    done: dict[tuple[str, str], None] = msgspec.field(default_factory=dict)
    """(verb, object) of what was done: clean, heat, cool, use, in order."""
    moved: dict[str, str] = msgspec.field(default_factory=dict)
    """Object -> receptacle the agent itself put it in last and has not taken it from
    since.
    """

    def learn(self, step: int, text: str) -> None:
        """Take in one observation."""
        for event, place, things in parse(text):
            if place:
                self.places.setdefault(place)
            if event == "see":
                self.seen[place] = things
                self.shut.discard(place)
            elif event == "arrive":
                self.at = place
                self.visited[place] = step
            elif event in ("closed", "close"):
                self.shut.add(place)
            elif event in ("take", "put"):
                self._carry(event, place, things[0])
            elif event in ("clean", "heat", "cool", "use"):
                self._treat(event, things[0])
            elif event == "room":
                self.places.update(dict.fromkeys(things))
            elif event == "facing":
                self.places.update(dict.fromkeys(things))
                self.at = self.at if self.at in things else things[0]
            elif event in ("carry", "empty"):
                self.holding = things[0] if things else ""

    def _carry(self, event: str, place: str, thing: str) -> None:
        rest = tuple(name for name in self.seen.get(place, ()) if name != thing)
        if event == "take":
            self.holding = thing
            self.seen[place] = rest
            self.moved.pop(thing, None)
        else:
            self.holding = ""
            self.seen[place] = (*rest, thing)
            self.moved[thing] = place

    def _treat(self, verb: str, thing: str) -> None:
        undone = {"heat": "cool", "cool": "heat"}.get(verb, "")
        self.done.pop((undone, thing), None)
        self.done[verb, thing] = None

    def holds(self, kind: str) -> list[tuple[str, str]]:
        """(object, receptacle) of every known object of a type, in the order of sight."""
        return [
            (thing, place)
            for place, things in self.seen.items()
            for thing in things
            if thing.rsplit(" ", 1)[0] == kind
        ]


def know(context: Context) -> Knowledge:
    """Everything the agent's own observations tell, plus the places that are admissible
    to go to.
    """
    known = Knowledge()
    for step, text in enumerate(context.observations):
        known.learn(step, text)
    for action in context.admissible:
        if action.startswith("go to "):
            known.places.setdefault(action[6:])
    return known


def goal_of(context: Context) -> Goal:
    """The goal from the task sentence; from the task's name where people worded it."""
    try:
        return parse_instruction(context.instruction)
    except DataError:
        return goal_of_task(context.task.id)
