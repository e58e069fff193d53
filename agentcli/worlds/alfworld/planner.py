"""The expert that knows where everything is: a short winning plan from the true facts.

It does not search; it knows the steps: fetch an object, treat it if the task requires
that, bring it to its place. It plans with each object of the right type and takes the
shortest plan, so it uses work that is half done: an object in hand or already cleaned,
or one of two in place. Facts have the names that the agent sees; no engine is imported.

The goal is read from the task sentence, which is one of alfworld's goal library. Free
sentences by people (which the official games do not use) have no goal here; the name of
the game's folder then says it.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import permutations

import msgspec

from agentcli.errors import DataError, EngineError
from agentcli.worlds.alfworld.draw import TOOLS, Tool, name_of
from agentcli.worlds.alfworld.names import type_of
from agentcli.worlds.alfworld.statekey import Fact

_SENTENCES = {
    "pick_clean_then_place_in_recep": (
        r"put a clean (\w+) in (\w+)|clean some (\w+) and put it in (\w+)"
    ),
    "pick_heat_then_place_in_recep": (
        r"put a hot (\w+) in (\w+)|heat some (\w+) and put it in (\w+)"
    ),
    "pick_cool_then_place_in_recep": (
        r"put a cool (\w+) in (\w+)|cool some (\w+) and put it in (\w+)"
    ),
    "pick_two_obj_and_place": (
        r"put two (\w+) in (\w+)|find two (\w+) and put them in (\w+)"
    ),
    "look_at_obj_in_light": (
        r"look at (\w+) under the (\w+)|examine the (\w+) with the (\w+)"
    ),
    "pick_and_place_simple": r"put a (\w+) in (\w+)|put some (\w+) on (\w+)",
}
"""Task type -> its two sentences, each with the object and the place."""


class Goal(msgspec.Struct, frozen=True):
    """One task, in the words of the texts (lower case, without numbers)."""

    kind: str
    object: str
    place: str
    """The goal receptacle's type; the lamp's for look_at_obj_in_light."""

    @property
    def tool(self) -> Tool | None:
        return TOOLS.get(self.kind)

    @property
    def count(self) -> int:
        return 2 if self.kind == "pick_two_obj_and_place" else 1


@lru_cache(maxsize=8192)
def parse_instruction(text: str) -> Goal:
    """The goal a task sentence names.

    Raises DataError for a sentence that is not one of the goal library's.
    """
    lowered = text.lower()
    for kind, sentences in _SENTENCES.items():
        match = re.search(sentences, lowered)
        if match:
            thing, place = filter(None, match.groups())
            return Goal(kind, thing, place)
    raise DataError(
        f"task sentence {text!r}: not one of alfworld's; play it with a model, it has "
        "no expert"
    )


def goal_of_task(task_id: str) -> Goal:
    """The goal that a task id's folder name states."""
    name = name_of(task_id)
    return Goal(name.kind, name.object.lower(), name.receptacle.lower())


PROPERTIES = {"istoggled", *(tool.property for tool in TOOLS.values())}
"""Predicates of what was done to objects."""


class Situation(msgspec.Struct):
    """The facts that matter, by what one asks them."""

    at: str = ""
    """Where the agent stands."""
    holding: str | None = None
    where: dict[str, str] = {}
    """Receptacle -> location. Several may share one."""
    inside: dict[str, str] = {}
    """Object -> receptacle."""
    closed: set[str] = set()
    done: set[tuple[str, str]] = set()
    """(predicate, object) of what was done to objects."""
    takes: set[tuple[str, str]] = set()
    """(receptacle type, object type) that fit."""

    def places(self, kind: str) -> list[str]:
        return [place for place in self.where if type_of(place) == kind]

    def things(self, kind: str) -> list[str]:
        """The objects of a type, the one in hand too, sorted."""
        things = [thing for thing in self.inside if type_of(thing) == kind]
        if self.holding and type_of(self.holding) == kind:
            things.append(self.holding)
        return sorted(things)


def situation(facts: Iterable[Fact]) -> Situation:
    """Sorts facts into a Situation; case and blanks around words do not matter."""
    now = Situation()
    opened = set()
    for predicate, *arguments in facts:
        words = [word.strip().lower() for word in arguments]
        first = words[0] if words else ""
        match predicate.strip().lower():
            case "inreceptacle":
                now.inside[first] = words[1]
            case "receptacleatlocation":
                now.where[first] = words[1]
            case "cancontain":
                place = first.removesuffix("type")
                now.takes.add((place, words[1].removesuffix("type")))
            case "openable":
                now.closed.add(first)
            case "opened":
                opened.add(first)
            case "atlocation":
                now.at = words[1]
            case "holds":
                now.holding = words[1]
            case name if name in PROPERTIES:
                now.done.add((name, first))
    # Facts come in any order, so what is open is taken off at the end.
    now.closed -= opened
    return now


class Walk:
    """A plan being written: the actions so far and what they change."""

    def __init__(self, start: Situation) -> None:
        self.start = start
        self.at = start.at
        self.closed = set(start.closed)
        self.actions: list[str] = []

    def go(self, place: str) -> None:
        if self.start.where[place] != self.at:
            self.at = self.start.where[place]
            self.actions.append(f"go to {place}")

    def reach(self, place: str) -> None:
        """Stands before `place`, opened."""
        self.go(place)
        if place in self.closed:
            self.closed.remove(place)
            self.actions.append(f"open {place}")

    def put(self, thing: str, place: str) -> None:
        """Brings what is held to `place`."""
        self.reach(place)
        self.actions.append(f"move {thing} to {place}")

    def nearest(
        self,
        places: Iterable[str],
        opening: bool = True,
        wish: str | None = None,
    ) -> str:
        """The place that costs least to use; ties go to `wish`, then by name.

        Raises EngineError for no place at all.
        """
        ranked = []
        for place in places:
            steps = int(self.start.where[place] != self.at)
            if opening and place in self.closed:
                steps += 1
            ranked.append((steps, place != wish, place))
        if not ranked:
            raise EngineError(
                "no plan: this room has no receptacle that the task needs"
            )
        return min(ranked)[2]

    def fetch(self, thing: str) -> None:
        """Takes `thing` from where it lay at the start, with hands that are freed."""
        held = self.start.holding
        place = self.start.inside[thing]
        if held is not None:
            kind = type_of(held)
            takes = self.start.takes
            homes = [
                name for name in self.start.where if (type_of(name), kind) in takes
            ]
            self.put(held, self.nearest(homes, wish=place))
        self.take(thing)

    def take(self, thing: str) -> None:
        """Takes `thing` from where it lay at the start."""
        place = self.start.inside[thing]
        self.reach(place)
        self.actions.append(f"take {thing} from {place}")


def plan(facts: Iterable[Fact], goal: Goal | str) -> list[str]:
    """Actions that win from `facts`; empty when the goal holds already.

    `goal` may be the task sentence. Raises EngineError when the room lacks what the
    task needs, DataError for an unknown sentence.
    """
    # An engine knows the sentence; the generator, the goal by the task's name.
    if isinstance(goal, str):
        goal = parse_instruction(goal)
    now = situation(facts)
    things = now.things(goal.object)
    if goal.count == 2:
        plans = _two(now, goal, things)
    elif goal.kind == "look_at_obj_in_light":
        lamps = sorted(lamp for lamp in now.inside if type_of(lamp) == goal.place)
        plans = [_look(now, thing, lamp) for thing in things for lamp in lamps]
    else:
        plans = [_bring(now, goal, thing) for thing in things]
    if not plans:
        raise EngineError(
            f"no plan: this game lacks what the task needs ({goal.object}, "
            f"{goal.place})"
        )
    # Of equally short plans the first: things are sorted, so it is the same for ever.
    return min(plans, key=len)


def _bring(now: Situation, goal: Goal, thing: str) -> list[str]:
    """One object, treated where the task says so, to its place."""
    walk = Walk(now)
    tool = goal.tool
    # Treated already: the property stays with the object when it is moved.
    if tool and (tool.property, thing) in now.done:
        tool = None
    if now.holding != thing:
        if tool is None and type_of(now.inside[thing]) == goal.place:
            return []
        walk.fetch(thing)
    if tool:
        # A device treats what is held before it, so it stays as it is: open or shut.
        devices = now.places(tool.receptacle.lower())
        device = walk.nearest(devices, opening=False)
        walk.go(device)
        walk.actions.append(f"{tool.verb} {thing} with {device}")
    walk.put(thing, walk.nearest(now.places(goal.place)))
    return walk.actions


def _look(now: Situation, thing: str, lamp: str) -> list[str]:
    """One object in hand before a lamp that was switched."""
    walk = Walk(now)
    if now.holding != thing:
        walk.fetch(thing)
    # A lamp is used where it stands; it need not be opened or held.
    walk.go(now.inside[lamp])
    if ("istoggled", lamp) not in now.done:
        walk.actions.append(f"use {lamp}")
    return walk.actions


def _two(now: Situation, goal: Goal, things: list[str]) -> list[list[str]]:
    """Two objects into one receptacle: a plan per receptacle and order of fetching."""
    plans = []
    for place in now.places(goal.place):
        missing = [thing for thing in things if now.inside.get(thing) != place]
        need = 2 - (len(things) - len(missing))
        # Any receptacle of the type will do, so one that holds two wins at once.
        if need <= 0:
            return [[]]
        for order in permutations(missing, need):
            # A wanted object that is in hand comes first: else it would be put down.
            if now.holding in missing and order[0] != now.holding:
                continue
            plans.append(_carry_all(now, order, place))
    return plans


def _carry_all(now: Situation, things: Sequence[str], place: str) -> list[str]:
    walk = Walk(now)
    if things[0] != now.holding:
        walk.fetch(things[0])
    walk.put(things[0], place)
    # Hands are free after each put, so there is nothing to lay down.
    for thing in things[1:]:
        walk.take(thing)
        walk.put(thing, place)
    return walk.actions
