"""The agent's picture of the room: the texts it saw, parsed and folded into one.

Both the searching expert and the compact prompt read this picture and nothing else of
the game. The patterns are those of the text grammar alfred.twl2. A single text is
parsed once and remembered; folding an episode is a walk over small tuples.
"""

import re
from functools import lru_cache

import msgspec

from agentcli.environments.protocol import Context
from agentcli.errors import DataError
from agentcli.worlds.alfworld.goal import (
    Goal,
    goal_of_task,
    parse_instruction,
)
from agentcli.worlds.alfworld.names import type_of

Event = tuple[str, str, tuple[str, ...]]
"""(what happened, the receptacle or tool of it or "", the objects of it)."""

_ENTITY = re.compile(r"[a-z]+ \d+")
_LISTED = re.compile(r"\ban? ([a-z]+ \d+)")
_PLACE = r"(?P<place>[a-z]+ \d+)"
_OBJECT = r"(?P<list>[a-z]+ \d+)"
_LIST = r"(?P<list>[^.]*)"
_PATTERNS = {
    "room": rf"Looking quickly around you, you see {_LIST}\.",
    "facing": rf"You are facing the {_LIST}\. Next to it",
    "arrive": rf"You arrive at {_PLACE}\.",
    "see": rf"(?:On the |The ){_PLACE}(?: is open\. In it)?, you see {_LIST}\.",
    "closed": rf"The {_PLACE} is closed\.",
    "open": rf"You open the {_PLACE}\.",
    "close": rf"You close the {_PLACE}\.",
    "take": rf"You pick up the {_OBJECT} from the {_PLACE}\.",
    "put": rf"You (?:move|put) the {_OBJECT} (?:to|in/on) the {_PLACE}\.",
    "clean": rf"You clean the {_OBJECT} using the {_PLACE}\.",
    "heat": rf"You heat the {_OBJECT} using the {_PLACE}\.",
    "cool": rf"You cool the {_OBJECT} using the {_PLACE}\.",
    "use": rf"You turn on the {_OBJECT}\.",
    "carry": rf"You are carrying: {_LIST}\.",
    "empty": r"You are not carrying anything\.",
    "idle": r"Nothing happens\.",
}
_COMPILED = {event: re.compile(pattern) for event, pattern in _PATTERNS.items()}


@lru_cache(maxsize=65536)
def parse(text: str) -> tuple[Event, ...]:
    """The events one observation reports, in the order of the patterns above.

    Empty for a text that says nothing new.
    """
    events = []
    for event, pattern in _COMPILED.items():
        match = pattern.search(text)
        if match:
            groups = match.groupdict()
            words = groups.get("list") or ""
            things = _LISTED.findall(words)
            # What one faces is listed without articles: "the drawer 1, and shelf 2".
            if not things or event == "facing":
                things = _ENTITY.findall(words)
            place = groups.get("place") or ""
            events.append((event, place, tuple(things)))
    return tuple(events)


class Knowledge(msgspec.Struct):
    """The room as the agent's past shows it."""

    places: dict[str, None] = {}
    """Receptacles known to exist, in the order they were named."""
    at: str = ""
    """The receptacle last arrived at; "" in the middle of the room."""
    visited: dict[str, int] = {}
    """Receptacle -> number of the step after which the agent last arrived there."""
    contents: dict[str, tuple[str, ...]] = {}
    """Receptacle -> what lies in it, as last seen and since changed by the agent."""
    shut: set[str] = set()
    """Receptacles known to be closed."""
    holding: str = ""
    done: dict[tuple[str, str], None] = {}
    """(verb, object) of what was done: clean, heat, cool, use, in order."""
    moved: dict[str, str] = {}
    """Object -> receptacle the agent itself put it in last and has not taken it from
    since.
    """

    def learn(self, step: int, text: str) -> None:
        """Takes in one observation."""
        for event, place, things in parse(text):
            if place:
                self.places.setdefault(place)
            if event == "see":
                self.contents[place] = things
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
            elif event in ("room", "facing"):
                self.places.update(dict.fromkeys(things))
                # Several places may share a viewing point: facing them all, the agent
                # is still at the one it went to.
                if event == "facing" and self.at not in things:
                    self.at = things[0]
            elif event in ("carry", "empty"):
                self.holding = things[0] if things else ""

    def _carry(
        self,
        event: str,
        place: str,
        thing: str,
    ) -> None:
        there = self.contents.get(place, ())
        others = tuple(name for name in there if name != thing)
        if event == "take":
            self.holding = thing
            self.contents[place] = others
            self.moved.pop(thing, None)
        else:
            self.holding = ""
            self.contents[place] = (*others, thing)
            self.moved[thing] = place

    def _treat(self, verb: str, thing: str) -> None:
        # What is heated is no longer cool, and the other way round.
        undone = {"heat": "cool", "cool": "heat"}.get(verb, "")
        self.done.pop((undone, thing), None)
        self.done[verb, thing] = None

    def sightings(self, kind: str) -> list[tuple[str, str]]:
        """(object, receptacle) of every known object of a type, as first seen."""
        sightings = []
        for place, things in self.contents.items():
            for thing in things:
                if type_of(thing) == kind:
                    sightings.append((thing, place))
        return sightings


def know(context: Context) -> Knowledge:
    """Everything the agent has learnt by observing, and where it may go now."""
    known = Knowledge()
    for step, text in enumerate(context.observations):
        known.learn(step, text)
    for action in context.admissible:
        if action.startswith("go to "):
            known.places.setdefault(action.removeprefix("go to "))
    return known


def goal_of(context: Context) -> Goal:
    """The goal from the task sentence; from the task's name where people worded it."""
    try:
        return parse_instruction(context.instruction)
    except DataError:
        return goal_of_task(context.task.id)
