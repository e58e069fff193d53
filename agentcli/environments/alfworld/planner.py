"""The expert that knows where everything is: a short winning plan from the true facts
of any moment of an episode.

It knows the domain instead of searching it: fetch an object, treat it where the task
says so, bring it to its place. Each object of the right type is tried and the shortest
plan wins, so that half-done work (an object in hand, already cleaned, one of two in
place) is used. It reads facts under the names that the agent sees, and imports no
engine.
"""

from collections.abc import Iterable
from itertools import permutations

import msgspec

from agentcli.environments.alfworld.goal import Goal, parse_instruction
from agentcli.environments.alfworld.names import type_of
from agentcli.errors import EngineError

Fact = tuple[str, ...]
"""(predicate, argument, ...), arguments under their display names: ("inreceptacle",
"apple 1", "fridge 1").
"""

DONE = {"clean": "isclean", "heat": "ishot", "cool": "iscool"}
"""Verb of a tool step -> predicate that tells it was taken."""


class Situation(msgspec.Struct):
    """The facts that matter, by what one asks them."""

    at: str = ""
    """Where the agent stands."""
    holding: str | None = None
    where: dict[str, str] = msgspec.field(default_factory=dict)
    """Receptacle -> location. Several may share one."""
    inside: dict[str, str] = msgspec.field(default_factory=dict)
    """Object -> receptacle."""
    closed: set[str] = msgspec.field(default_factory=set)
    done: set[tuple[str, str]] = msgspec.field(default_factory=set)
    """(predicate, object) of what was done to objects: isclean, ishot, iscool,
    istoggled.
    """
    takes: set[tuple[str, str]] = msgspec.field(default_factory=set)
    """(receptacle type, object type) that fit."""


def situation(facts: Iterable[Fact]) -> Situation:
    """Sort facts into a Situation; predicates and words in any case, words with or
    without blanks around them.
    """
    found = Situation()
    openable: set[str] = set()
    opened: set[str] = set()
    for fact in facts:
        predicate, *words = (word.strip().lower() for word in fact)
        if predicate == "inreceptacle":
            found.inside[words[0]] = words[1]
        elif predicate == "receptacleatlocation":
            found.where[words[0]] = words[1]
        elif predicate == "cancontain":
            found.takes.add(
                (words[0].removesuffix("type"), words[1].removesuffix("type"))
            )
        elif predicate in ("isclean", "ishot", "iscool", "istoggled"):
            found.done.add((predicate, words[0]))
        elif predicate == "openable":
            openable.add(words[0])
        elif predicate == "opened":
            opened.add(words[0])
        elif predicate == "atlocation":
            found.at = words[1]
        elif predicate == "holds":
            found.holding = words[1]
    found.closed = openable - opened
    return found


class Walk:
    """A plan being written: the actions so far and what they change."""

    def __init__(self, start: Situation) -> None:
        self.start = start
        self.at = start.at
        self.opened: set[str] = set()
        self.actions: list[str] = []

    def cost(self, place: str, open_it: bool = True) -> int:
        """Actions until `place` can be used."""
        shut = open_it and place in self.start.closed and place not in self.opened
        return (self.start.where[place] != self.at) + shut

    def reach(self, place: str, open_it: bool = True) -> None:
        """Stand before `place`, opened where that is asked for."""
        if self.start.where[place] != self.at:
            self.at = self.start.where[place]
            self.actions.append(f"go to {place}")
        if open_it and place in self.start.closed and place not in self.opened:
            self.opened.add(place)
            self.actions.append(f"open {place}")

    def take(self, thing: str) -> None:
        """Fetch `thing` from where it lay at the start."""
        place = self.start.inside[thing]
        self.reach(place)
        self.actions.append(f"take {thing} from {place}")

    def put(self, thing: str, place: str) -> None:
        """Bring what is held to `place`."""
        self.reach(place)
        self.actions.append(f"move {thing} to {place}")

    def nearest(
        self, places: Iterable[str], open_it: bool = True, wish: str | None = None
    ) -> str:
        """The place that costs least to use; ties go to `wish`, then by name. Raises
        EngineError for no place at all.
        """
        ranked = [(self.cost(place, open_it), place != wish, place) for place in places]
        if not ranked:
            raise EngineError(
                "no plan: this room has no receptacle that the task needs"
            )
        return min(ranked)[2]

    def free_hands(self, wish: str | None) -> None:
        """Put down what is held, wherever it fits; at `wish` if that costs no more."""
        held = self.start.holding
        if held is not None:
            kind = type_of(held)
            fitting = (
                place
                for place in self.start.where
                if (type_of(place), kind) in self.start.takes
            )
            self.put(held, self.nearest(fitting, wish=wish))


def plan(facts: Iterable[Fact], goal: Goal | str) -> list[str]:
    """Actions that win from `facts`; empty when the goal holds already.

    `goal` may be the task sentence. Raises EngineError when the room lacks what the
    task needs, DataError for an unknown sentence.
    """
    wanted = parse_instruction(goal) if isinstance(goal, str) else goal
    now = situation(facts)
    known = {*now.inside, *([now.holding] if now.holding else [])}
    things = sorted(thing for thing in known if type_of(thing) == wanted.object)
    if wanted.count == 2:
        plans = _two(now, wanted, things)
    elif wanted.kind == "look_at_obj_in_light":
        lamps = sorted(thing for thing in now.inside if type_of(thing) == wanted.place)
        plans = [_look(now, thing, lamp) for thing in things for lamp in lamps]
    else:
        plans = [_bring(now, wanted, thing) for thing in things]
    if not plans:
        raise EngineError(
            f"no plan: this game lacks what the task needs ({wanted.object}, "
            f"{wanted.place})"
        )
    return min(plans, key=len)


def _places(now: Situation, kind: str) -> list[str]:
    return [place for place in now.where if type_of(place) == kind]


def _bring(now: Situation, goal: Goal, thing: str) -> list[str]:
    """One object, treated where the task says so, to its place."""
    walk = Walk(now)
    tool = goal.treatment
    treated = tool is None or (DONE[tool[0]], thing) in now.done
    if now.holding != thing:
        if treated and type_of(now.inside[thing]) == goal.place:
            return []
        walk.free_hands(now.inside[thing])
        walk.take(thing)
    if tool and not treated:
        device = walk.nearest(_places(now, tool[1]), open_it=False)
        walk.reach(device, open_it=False)
        walk.actions.append(f"{tool[0]} {thing} with {device}")
    walk.put(thing, walk.nearest(_places(now, goal.place)))
    return walk.actions


def _look(now: Situation, thing: str, lamp: str) -> list[str]:
    """One object in hand before a lamp that was switched."""
    walk = Walk(now)
    if now.holding != thing:
        walk.free_hands(now.inside[thing])
        walk.take(thing)
    walk.reach(now.inside[lamp], open_it=False)
    if ("istoggled", lamp) not in now.done:
        walk.actions.append(f"use {lamp}")
    return walk.actions


def _two(now: Situation, goal: Goal, things: list[str]) -> list[list[str]]:
    """Two objects into one and the same receptacle: a plan per receptacle and order of
    fetching.
    """
    plans = []
    for place in _places(now, goal.place):
        missing = [thing for thing in things if now.inside.get(thing) != place]
        need = 2 - (len(things) - len(missing))
        if need <= 0:
            return [[]]
        for order in permutations(missing, need):
            if now.holding in missing and order[0] != now.holding:
                continue
            walk = Walk(now)
            for thing in order:
                if thing != now.holding:
                    if thing is order[0]:
                        walk.free_hands(now.inside[thing])
                    walk.take(thing)
                walk.put(thing, place)
            plans.append(walk.actions)
    return plans
