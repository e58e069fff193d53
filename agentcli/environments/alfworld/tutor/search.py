"""The expert that searches: it knows only what it has seen, like the agent that shall
learn from it.

It visits the receptacles where the object may lie, in an order drawn by the seed, opens
closed ones, takes, treats and places. Every move is a pure function of the agent's
past, the seed and the habits, so it can go on from any point of an episode, also from
one that somebody else spoiled. Its habits are what is wrong with it on purpose:
forgetting the tool step or the second object, passing by closed receptacles. Its words
are few and regular, because tiny models learn them.
"""

from functools import lru_cache

from agentcli.environments.alfworld.goal import Goal
from agentcli.environments.alfworld.layouts import fits
from agentcli.environments.alfworld.names import type_of
from agentcli.environments.alfworld.tutor.habits import Habits, chance
from agentcli.environments.alfworld.tutor.knowledge import goal_of, know
from agentcli.environments.protocol import FINISHED, Advice, Context
from agentcli.records.files import derive_seed


def search(context: Context, seed: int, habits: Habits) -> Advice:
    """The next move. Raises DataError when neither the task sentence nor its name says
    what is wanted.
    """
    return _Searcher(context, seed, habits).move()


@lru_cache
def _fits() -> dict[str, frozenset[str]]:
    return {
        place.lower(): frozenset(thing.lower() for thing in things)
        for place, things in fits().items()
    }


@lru_cache(maxsize=65536)
def _rank(seed: int, place: str) -> int:
    return derive_seed("search", seed, place)


class _Searcher:
    """One decision: what is known, and what follows from it."""

    def __init__(self, context: Context, seed: int, habits: Habits) -> None:
        self.goal: Goal = goal_of(context)
        self.known = know(context)
        self.admissible = dict.fromkeys(context.admissible)
        self.order = {
            action: position for position, action in enumerate(context.admissible)
        }
        self.seed = seed
        self.overlook = habits.overlook
        self.forgets = chance(seed, "forget") < habits.forget
        self.wanders = chance(seed, "wander") < habits.wander

    def move(self) -> Advice:
        held = self.known.holding
        if held and type_of(held) == self.goal.object:
            return (
                self._light()
                if self.goal.kind == "look_at_obj_in_light"
                else self._deliver(held)
            )
        if held:
            return self._put_down(held)
        if self._finished():
            return Advice("think", FINISHED, "look")
        return self._fetch() or self._explore(self.goal.object)

    def _finished(self) -> bool:
        """All is in place as far as this expert cares (the game ends by itself when it
        really is).
        """
        wanted = 1 if self.forgets else self.goal.count
        if self.goal.count == 1 and (self.goal.treatment is None or not self.forgets):
            return False
        placed = [
            place
            for thing, place in self.known.moved.items()
            if self._at_goal(thing, place)
        ]
        return any(placed.count(place) >= wanted for place in placed)

    def _at_goal(self, thing: str, place: str) -> bool:
        """Whether it lies where it may stay; two objects must share one receptacle."""
        if type_of(thing) != self.goal.object or type_of(place) != self.goal.place:
            return False
        return self.goal.count == 1 or place == self._choose(
            self._places(self.goal.place)
        )

    def _treated(self, thing: str) -> bool:
        tool = self.goal.treatment
        return tool is None or self.forgets or (tool[0], thing) in self.known.done

    def _fetch(self) -> Advice | None:
        """Get an object that was seen and is not yet where it belongs."""
        say = f"take {self.goal.object}"
        for action in self.admissible:
            if action.startswith(f"take {self.goal.object} "):
                thing, place = action.removeprefix("take ").split(" from ")
                if not (self._at_goal(thing, place) and self._treated(thing)):
                    return Advice("think", say, action)
        for thing, place in self.known.holds(self.goal.object):
            if not (self._at_goal(thing, place) and self._treated(thing)):
                return Advice("think", say, self._reach(place))
        return None

    def _deliver(self, held: str) -> Advice:
        tool = self.goal.treatment
        if tool and not self._treated(held):
            say = f"{tool[0]} {self.goal.object}"
            for action in self.admissible:
                if action.startswith(f"{tool[0]} {held} with "):
                    return Advice("think", say, action)
            return Advice(
                "think", say, self._reach(self._choose(self._places(tool[1])))
            )
        place = self._choose(self._places(self.goal.place))
        say = f"put {self.goal.object}"
        return Advice("think", say, self._put(held, place) or self._reach(place))

    def _light(self) -> Advice:
        lamp = self.goal.place
        for action in self.admissible:
            if action.startswith(f"use {lamp} "):
                return Advice("think", f"use {lamp}", action)
        for _, place in self.known.holds(lamp):
            return Advice("think", f"use {lamp}", self._reach(place))
        return self._explore(lamp)

    def _put_down(self, held: str) -> Advice:
        """Get rid of an object that is not wanted: here if it fits here, else where it
        would.
        """
        say = f"drop {type_of(held)}"
        for action in self.admissible:
            if action.startswith((f"move {held} to ", f"put {held} in/on ")):
                return Advice("think", say, action)
        homes = [
            place
            for place in self.known.places
            if type_of(held) in _fits().get(type_of(place), ())
        ]
        homes.sort(
            key=lambda place: (place in self.known.shut, _rank(self.seed, place))
        )
        return Advice("think", say, self._reach(homes[0]) if homes else "look")

    def _put(self, held: str, place: str) -> str | None:
        actions = (f"move {held} to {place}", f"put {held} in/on {place}")
        return next((action for action in actions if action in self.admissible), None)

    def _places(self, kind: str) -> list[str]:
        return [place for place in self.known.places if type_of(place) == kind]

    def _choose(self, places: list[str]) -> str:
        """Of several alike: the one that holds most of what is wanted, then where the
        agent stands, then by the seed.
        """
        held = [place for _, place in self.known.holds(self.goal.object)]
        return min(
            places,
            key=lambda place: (
                -held.count(place),
                place != self.known.at,
                _rank(self.seed, place),
            ),
            default="",
        )

    def _reach(self, place: str) -> str:
        """The next action towards using `place`: go there, open it; leave first where
        its viewing point is shared.
        """
        if f"open {place}" in self.admissible:
            return f"open {place}"
        if f"go to {place}" in self.admissible:
            return f"go to {place}"
        return self._away(place)

    def _away(self, place: str) -> str:
        ways = [
            action
            for action in self.admissible
            if action.startswith("go to ") and action != f"go to {place}"
        ]
        return (
            min(ways, key=lambda action: (_rank(self.seed, action), action))
            if ways
            else "look"
        )

    def _explore(self, what: str) -> Advice:
        """Look where it was not looked before: here, then where it may lie, then
        elsewhere, then behind shut doors.
        """
        say = f"find {what}"
        for action in self.admissible:
            place = action[5:]
            if (
                action.startswith("open ")
                and place not in self.known.seen
                and not self._overlooks(place)
            ):
                return Advice("explore", say, action)
        seen = self.known.seen
        new = [
            place
            for place in self.known.places
            if place not in self.known.visited and place not in seen
        ]
        new = [place for place in new if f"go to {place}" in self.admissible]
        if new:
            return Advice(
                "explore",
                say,
                f"go to {min(new, key=lambda place: self._promise(what, place))}",
            )
        shut = [place for place in self.known.places if place not in seen]
        if shut:
            return Advice(
                "explore",
                say,
                self._reach(min(shut, key=lambda place: self._promise(what, place))),
            )
        oldest = sorted(self.known.visited, key=lambda place: self.known.visited[place])
        ways = [
            f"go to {place}" for place in oldest if f"go to {place}" in self.admissible
        ]
        return Advice("explore", say, ways[0] if ways else self._away(""))

    def _promise(self, what: str, place: str) -> tuple[bool, int]:
        """Sorts places where it may lie first, by the seed; the goal itself late, for
        things that belong there lie elsewhere.
        """
        late = what == self.goal.object and type_of(place) == self.goal.place
        lies = what == "desklamp" or what in _fits().get(type_of(place), ())
        return late or not lies, self._place(place)

    def _place(self, place: str) -> int:
        """Its place in the order of visits: one drawn by the seed for an expert that
        wanders, else that of the commands.
        """
        return (
            _rank(self.seed, place)
            if self.wanders
            else self.order.get(f"go to {place}", -1)
        )

    def _overlooks(self, place: str) -> bool:
        everywhere = all(
            place in self.known.visited or place in self.known.seen
            for place in self.known.places
        )
        return (
            not everywhere
            and derive_seed("overlook", self.seed, place) < self.overlook * 2.0**64
        )
