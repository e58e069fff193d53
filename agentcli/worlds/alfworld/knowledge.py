"""The agent's picture of the room: the texts it saw, parsed and folded into one.

Both the searching expert and the compact prompt read this picture and nothing else of
the game. The patterns are those of the text grammar alfred.twl2. A single text is
parsed once and remembered; folding an episode is a walk over small tuples.

A whole decision in 50 to 60 words, for policies too small for the papers' prompt.

The information is the same, drawn from the agent's own observations, the task sentence
and what is admissible now. Articles go; entities stay whole ("fridge 1" is one token of
a tiny tokenizer). Look, inventory, help, examine and slice are left out, and so are
takes of things that the task does not ask for: `now` names them.

The entity names that games can show, for a tiny tokenizer that has a token for each.

For generated games the set is closed over the rooms in force: as many receptacles of a
type as the fullest room has, and as many objects of a type as the generator may place.
For a real data set it is read from the games' own problems.
"""

import re
from collections import Counter
from functools import lru_cache
from pathlib import Path

import msgspec

from agentcli.environments.protocol import Context
from agentcli.errors import DataError
from agentcli.records.regular import read_regular
from agentcli.worlds.alfworld import dataset
from agentcli.worlds.alfworld.draw import scenes
from agentcli.worlds.alfworld.layouts import room
from agentcli.worlds.alfworld.names import display_names, type_of
from agentcli.worlds.alfworld.options import OFFICIAL_GAMES, AlfworldOptions
from agentcli.worlds.alfworld.planner import Goal, goal_of_task, parse_instruction

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


HIDDEN = ("go to ", "examine ", "slice ", "look", "inventory", "help")
"""Beginnings of actions that are not listed as local ones."""
SIGHTINGS = 3
"""The most sightings of relevant things."""


def compact(context: Context) -> str:
    """One line per kind of information; lines that would be empty are left out."""
    goal = goal_of(context)
    known = know(context)
    sentence = context.instruction.rstrip(".").lower()
    new = []
    old = []
    shut = []
    for action in context.admissible:
        if action.startswith("go to "):
            place = action.removeprefix("go to ")
            if place not in known.visited:
                new.append(place)
            elif place in known.shut:
                shut.append(place)
            else:
                old.append(place)
    lines = {
        "task": sentence.removeprefix("your task is to: "),
        "did": " ".join(f"{verb} {thing}" for verb, thing in known.done),
        "found": _sightings(known, goal),
        "last": _last(context, goal),
        "now": _brief(context.observations[-1]),
        "at": f"{known.at or 'middle'} hold {known.holding or 'nothing'}",
        "new": " ".join(new),
        "old": " ".join(old),
        "shut": " ".join(shut),
        "can": _local(context.admissible, goal),
    }
    return "\n".join(f"{label} {text}" for label, text in lines.items() if text)


def _sightings(known: Knowledge, goal: Goal) -> str:
    """Where the task's objects and lamp were last seen."""
    sightings = known.sightings(goal.object)
    if goal.kind == "look_at_obj_in_light":
        sightings += known.sightings(goal.place)
    # What already lies in a goal receptacle comes first.
    sightings.sort(key=lambda sighting: type_of(sighting[1]) != goal.place)
    return " ".join(f"{thing} {place}" for thing, place in sightings[:SIGHTINGS])


def _last(context: Context, goal: Goal) -> str:
    """The step before, as "observation > action"; other objects are left out."""
    if not context.actions:
        return ""
    before = _brief(context.observations[-2], goal)
    return f"{before} > {context.actions[-1] or 'nothing'}"


def _local(admissible: tuple[str, ...], goal: Goal) -> str:
    actions = []
    for action in admissible:
        takes = action.startswith("take ")
        useful = not takes or action.startswith(f"take {goal.object} ")
        if useful and not action.startswith(HIDDEN):
            actions.append(action)
    return " , ".join(actions)


@lru_cache(maxsize=65536)
def _brief(text: str, goal: Goal | None = None) -> str:
    """One observation without articles: `countertop 1 has apple 1 mug 2`.

    With a goal, only its things are listed. A text that says where the agent is and no
    more becomes "start"; one that cannot be parsed becomes "other".
    """
    events = parse(text)
    phrases = []
    for event, place, things in events:
        if event == "see":
            phrases.append(f"{place} {_contents(things, goal)}")
        elif event == "closed":
            phrases.append(f"{place} closed")
        elif event == "idle":
            phrases.append("nothing happens")
        elif event not in ("room", "facing", "arrive", "open"):
            phrases.append(" ".join([event, *things]))
    return " ".join(phrases) or ("start" if events else "other")


def _contents(things: tuple[str, ...], goal: Goal | None) -> str:
    if not things:
        return "empty"
    if goal:
        kinds = (goal.object, goal.place)
        things = tuple(thing for thing in things if type_of(thing) in kinds)
    return f"has {' '.join(things)}" if things else "other"


class _Problem(msgspec.Struct):
    pddl_problem: str


_PROBLEM = msgspec.json.Decoder(_Problem)
_DECLARED = re.compile(r"^\s*(\w+_bar_\w+) - (?:object|receptacle)\s*$", re.MULTILINE)


def entities(options: AlfworldOptions, data: Path | None) -> list[str]:
    """All receptacle and object names with their numbers, sorted.

    `data` names a real data set to read instead.
    """
    return sorted(_of_data(data) if data else _of_rooms(options))


def _of_rooms(options: AlfworldOptions) -> set[str]:
    most: Counter[str] = Counter()
    for split in OFFICIAL_GAMES:
        for scene in scenes(options, split):
            here = room(scene)
            instances = options.distractor_instances + 1
            most |= Counter(here.types)
            most |= Counter(dict.fromkeys(here.objects, instances))
            most |= Counter({"DeskLamp": int(here.lamp)})
    names = set()
    for kind, count in most.items():
        for number in range(1, count + 1):
            names.add(f"{kind.lower()} {number}")
    return names


@lru_cache(maxsize=4)
def _of_data(data: Path) -> set[str]:
    names: set[str] = set()
    for split in OFFICIAL_GAMES:
        for task_id in dataset.list_games(data, split):
            content = read_regular(dataset.game_file(data, task_id))
            problem = _PROBLEM.decode(content).pddl_problem
            names.update(display_names(_DECLARED.findall(problem)).values())
    return names
