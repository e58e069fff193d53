"""The expert that searches: it knows only what it has seen, like its pupil.

It visits the receptacles where the object may lie, in an order drawn by the seed, opens
closed ones, takes, treats and places. Every move is a pure function of the agent's
past, the seed and the habits, so it can go on from any point of an episode, also from
one that somebody else spoiled. Its words are few and regular, because tiny models learn
them.
"""

from collections import Counter
from functools import lru_cache

import msgspec

from agentcli.environments.protocol import FINISHED, Advice, Context
from agentcli.records.files import derive_seed
from agentcli.records.section import Share
from agentcli.worlds.alfworld.knowledge import goal_of, know
from agentcli.worlds.alfworld.layouts import fits
from agentcli.worlds.alfworld.names import type_of
from agentcli.worlds.generated import chance, strikes


class AlfworldHabits(msgspec.Struct, kw_only=True, frozen=True):
    """The faults that the expert has on purpose: headroom for reinforcement learning.

    Shares of episodes, or of places. Each is also a field of `demos`.
    """

    forget: Share = 0.0
    """Share of episodes in which the tool step (clean, heat, cool) is left out, or the
    second object.
    """
    overlook: Share = 0.0
    """Share of closed receptacles that are passed by without opening."""
    wander: Share = 1.0
    """Share of episodes that visit places in an order of their own; the others follow
    the order of the commands.
    """


def search(
    context: Context,
    seed: int,
    habits: AlfworldHabits,
) -> Advice:
    """The next move.

    Raises DataError when neither the task sentence nor its name says what is wanted.
    """
    return _Decision(context, seed, habits).move()


@lru_cache
def _pairs() -> set[tuple[str, str]]:
    """(object type, receptacle type) that fit, as the texts spell them."""
    pairs = set()
    for place, things in fits().items():
        for thing in things:
            pairs.add((thing.lower(), place.lower()))
    return pairs


@lru_cache(maxsize=65536)
def _rank(seed: int, place: str) -> int:
    return derive_seed("search", seed, place)


class _Decision:
    """One decision: what is known, and what follows from it."""

    def __init__(
        self,
        context: Context,
        seed: int,
        habits: AlfworldHabits,
    ) -> None:
        self.goal = goal_of(context)
        self.wanted = self.goal.object
        self.known = know(context)
        self.order = {action: index for index, action in enumerate(context.admissible)}
        """Action that is admissible -> its place among them."""
        self.seed = seed
        self.overlook = habits.overlook
        self.forgets = chance(seed, "forget") < habits.forget
        self.wanders = chance(seed, "wander") < habits.wander
        # What is forgotten is the treatment, or one of two objects.
        self.tool = None if self.forgets else self.goal.tool

    def move(self) -> Advice:
        """The next move, by what is in hand."""
        held = self.known.holding
        if not held:
            if self._is_finished():
                return Advice("think", FINISHED, "look")
            return self._fetch() or self._explore(self.wanted)
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
