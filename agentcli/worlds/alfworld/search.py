"""The tutor of ALFWorld: what was seen, a short prompt, and an expert that searches.

Both prompt and expert read one picture of the room, folded from the texts that the
agent saw (the patterns are those of the text grammar alfred.twl2), and know nothing
else of the game. A single text is parsed once and remembered.

The prompt has 50 to 60 words, for policies too small for the papers' prompt. Articles
go; entities stay whole ("fridge 1" is one token of a tiny tokenizer). Look, inventory,
help, examine and slice are left out, and so are takes of things that the task does not
ask for: `now` names them.

The expert visits the receptacles where the object may lie, in an order drawn by the
seed, opens closed ones, takes, treats and places. Every move is a pure function of the
agent's past, the seed and the habits, so it can go on from any point of an episode,
also from one that somebody else spoiled. Its words are few and regular, because tiny
models learn them.
"""

import re
from collections import Counter
from functools import lru_cache
from pathlib import Path

import msgspec

from agentcli.environments.protocol import FINISHED, Advice, Context
from agentcli.errors import DataError
from agentcli.records.files import derive_seed
from agentcli.records.regular import read_regular
from agentcli.worlds.alfworld import dataset
from agentcli.worlds.alfworld.draw import fits, room, scenes
from agentcli.worlds.alfworld.names import display_names, type_of
from agentcli.worlds.alfworld.options import OFFICIAL_GAMES, AlfworldOptions
from agentcli.worlds.alfworld.planner import Goal, goal_of_task, parse_instruction
from agentcli.worlds.generated import Habits, indulges, strikes

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

    def _carry(self, event: str, place: str, thing: str) -> None:
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
    known_lines = [f"{label} {text}" for label, text in lines.items() if text]
    return "\n".join(known_lines)


def _sightings(known: Knowledge, goal: Goal) -> str:
    """Where the task's objects and lamp were last seen."""
    sightings = known.sightings(goal.object)
    if goal.kind == "look_at_obj_in_light":
        sightings += known.sightings(goal.place)
    # What already lies in a goal receptacle comes first.
    sightings.sort(key=lambda sighting: type_of(sighting[1]) != goal.place)
    shown = sightings[:SIGHTINGS]
    return " ".join(f"{thing} {place}" for thing, place in shown)


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
        names |= {f"{kind.lower()} {number}" for number in range(1, count + 1)}
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


class AlfworldHabits(Habits, frozen=True):
    """The faults that the expert has on purpose.

    Of episodes, `forget` leaves out the tool step (clean, heat, cool) or the second
    object, and `wander` visits places in an order of its own, not that of the commands;
    of closed receptacles, `overlook` passes by without opening.
    """


def search(context: Context, seed: int, habits: AlfworldHabits) -> Advice:
    """The next move.

    Raises DataError when neither the task sentence nor its name says what is wanted.
    """
    return _Decision(context, seed, habits).move()


@lru_cache
def _pairs() -> set[tuple[str, str]]:
    """(object type, receptacle type) that fit, as the texts spell them."""
    pairs = ((thing, place) for place, things in fits().items() for thing in things)
    return {(thing.lower(), place.lower()) for thing, place in pairs}


@lru_cache(maxsize=65536)
def _rank(seed: int, place: str) -> int:
    return derive_seed("search", seed, place)


class _Decision:
    """One decision: what is known, and what follows from it."""

    def __init__(self, context: Context, seed: int, habits: AlfworldHabits) -> None:
        self.goal = goal_of(context)
        self.wanted = self.goal.object
        self.known = know(context)
        self.order = {action: index for index, action in enumerate(context.admissible)}
        """Action that is admissible -> its place among them."""
        self.seed = seed
        self.overlook = habits.overlook
        self.forgets = indulges(habits, "forget", seed)
        self.wanders = indulges(habits, "wander", seed)
        # What is forgotten is the treatment, or one of two objects.
        self.tool = None if self.forgets else self.goal.tool

    def move(self) -> Advice:
        """The next move, by what is in hand."""
        held = self.known.holding
        if not held:
            if self._is_finished():
                return Advice("think", FINISHED, "look")
            return self._fetch() or self._explore(self.wanted)
        # Somebody else took it before this expert went on from here.
        if type_of(held) != self.wanted:
            return self._put_down(held)
        if self.goal.kind == "look_at_obj_in_light":
            return self._light()
        return self._deliver(held)

    def _is_finished(self) -> bool:
        """Whether all is in place as far as this expert cares.

        The game ends by itself when it really is.
        """
        # An expert that forgets nothing has one object right only when the game has
        # ended.
        if self.goal.count == 1 and self.tool is self.goal.tool:
            return False
        wanted = 1 if self.forgets else self.goal.count
        placed: Counter[str] = Counter()
        for thing, place in self.known.moved.items():
            if self._is_at_goal(thing, place):
                placed[place] += 1
        return max(placed.values(), default=0) >= wanted

    def _is_at_goal(self, thing: str, place: str) -> bool:
        """Whether it lies where it may stay."""
        goal = self.goal
        if type_of(thing) != goal.object or type_of(place) != goal.place:
            return False
        # Two objects must share one receptacle.
        return goal.count == 1 or place == self._choose(goal.place)

    def _is_treated(self, thing: str) -> bool:
        return self.tool is None or (self.tool.verb, thing) in self.known.done

    def _is_right(self, thing: str, place: str) -> bool:
        return self._is_at_goal(thing, place) and self._is_treated(thing)

    def _listed(self, *beginnings: str) -> list[str]:
        return [action for action in self.order if action.startswith(beginnings)]

    def _fetch(self) -> Advice | None:
        """Takes an object that was seen and is not yet where it belongs."""
        say = f"take {self.wanted}"
        for action in self._listed(f"{say} "):
            thing, place = action.removeprefix("take ").split(" from ")
            if not self._is_right(thing, place):
                return Advice("think", say, action)
        for thing, place in self.known.sightings(self.wanted):
            if not self._is_right(thing, place):
                return Advice("think", say, self._reach(place))
        return None

    def _deliver(self, held: str) -> Advice:
        """Treats what is held where that is due, then brings it to the goal."""
        tool = self.tool
        if tool and not self._is_treated(held):
            say = f"{tool.verb} {self.wanted}"
            for action in self._listed(f"{tool.verb} {held} with "):
                return Advice("think", say, action)
            place = self._choose(tool.receptacle.lower())
            return Advice("think", say, self._reach(place))
        say = f"put {self.wanted}"
        place = self._choose(self.goal.place)
        # Grammars word it in one way or the other.
        for action in (f"move {held} to {place}", f"put {held} in/on {place}"):
            if action in self.order:
                return Advice("think", say, action)
        return Advice("think", say, self._reach(place))

    def _light(self) -> Advice:
        """Switches on a lamp, the object in hand."""
        lamp = self.goal.place
        say = f"use {lamp}"
        for action in self._listed(f"{say} "):
            return Advice("think", say, action)
        for _, place in self.known.sightings(lamp):
            return Advice("think", say, self._reach(place))
        return self._explore(lamp)

    def _put_down(self, held: str) -> Advice:
        """Gets rid of what is not wanted: here if it fits here, else where it would."""
        kind = type_of(held)
        say = f"drop {kind}"
        for action in self._listed(f"move {held} to ", f"put {held} in/on "):
            return Advice("think", say, action)
        known = self.known
        homes = []
        # Open places first: a shut one costs a step more.
        for place in known.places:
            if (kind, type_of(place)) in _pairs():
                rank = _rank(self.seed, place)
                homes.append((place in known.shut, rank, place))
        if not homes:
            return Advice("think", say, "look")
        _, _, home = min(homes)
        return Advice("think", say, self._reach(home))

    def _choose(self, kind: str) -> str:
        """One receptacle of a type, "" if none is known.

        The one that holds most of what is wanted, then where the agent stands, then by
        the seed.
        """
        holders = [place for _, place in self.known.sightings(self.wanted)]

        def preference(place: str) -> tuple[int, bool, int]:
            away = place != self.known.at
            return -holders.count(place), away, _rank(self.seed, place)

        places = (place for place in self.known.places if type_of(place) == kind)
        return min(places, key=preference, default="")

    def _reach(self, place: str) -> str:
        """The next action towards using `place`: open it, or go there."""
        for action in (f"open {place}", f"go to {place}"):
            if action in self.order:
                return action
        # It is right here, but under another place that shares its viewing point. After
        # a step away, going there is admissible.
        return self._away()

    def _away(self) -> str:
        def rank(action: str) -> tuple[int, str]:
            return _rank(self.seed, action), action

        return min(self._listed("go to "), key=rank, default="look")

    def _explore(self, target: str) -> Advice:
        """Looks where it has not looked: here, where it may lie, elsewhere."""
        return Advice("explore", f"find {target}", self._next_place(target))

    def _next_place(self, target: str) -> str:
        known = self.known
        for action in self._listed("open "):
            place = action.removeprefix("open ")
            if place not in known.contents and not self._overlooks(place):
                return action
        unseen = {}
        new = {}
        for place in known.places:
            if place not in known.contents:
                promise = self._promise(target, place)
                unseen[place] = promise
                if place not in known.visited and f"go to {place}" in self.order:
                    new[place] = promise
        # Shut doors that were passed by come last.
        if new:
            return f"go to {min(new, key=new.__getitem__)}"
        if unseen:
            return self._reach(min(unseen, key=unseen.__getitem__))
        # Everything was seen, and the object was not: it may have been moved.
        for place in sorted(known.visited, key=known.visited.__getitem__):
            if f"go to {place}" in self.order:
                return f"go to {place}"
        return self._away()

    def _promise(self, target: str, place: str) -> tuple[bool, int]:
        """Sorts places where it may lie first, then by the order of visits."""
        kind = type_of(place)
        # The goal itself comes late: things that belong there lie elsewhere.
        late = target == self.wanted and kind == self.goal.place
        fits_there = target == "desklamp" or (target, kind) in _pairs()
        unlikely = late or not fits_there
        if self.wanders:
            return unlikely, _rank(self.seed, place)
        return unlikely, self.order.get(f"go to {place}", -1)

    def _overlooks(self, place: str) -> bool:
        """Whether a closed receptacle is passed by while there are places to visit."""
        known = self.known
        known_well = known.visited.keys() | known.contents.keys()
        if known_well >= known.places.keys():
            return False
        return strikes(self.overlook, "overlook", self.seed, place)
