"""Two texts per state: the exact key, and the papers' canonical state f(s).

The exact key names what the agent holds, what was done to things, and a hash over every
fact that can still change and still matters. Equal keys mean an equal future.

The canonical state (RewardFlow B.1, Fig. 11) is the observation, the inventory, and
what was cleaned, heated or cooled. It is what the agent knows, so it merges what looks
the same. Treated things that were put down are named too, which the paper's figure
leaves open.

A fact matters if a precondition, the goal or the text grammar asks for its predicate.
Other facts would only split equal states, and so would the number of steps.
"""

import hashlib
import operator
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import reduce
from typing import Any

import msgspec

from agentcli.errors import EngineError

Fact = tuple[str, ...]
"""(predicate, argument, ...), arguments under the words that the agent sees."""

LABELS = {
    "isclean": "cleaned",
    "ishot": "heated",
    "iscool": "cooled",
    "issliced": "sliced",
    "istoggled": "toggled",
    "opened": "open",
}
"""Persistent properties -> the word a key shows for them."""
READABLE = frozenset({"holds", *LABELS})
"""Predicates that a key spells out."""
TREATMENTS = ("isclean", "ishot", "iscool")
"""Properties that a canonical state names (RewardFlow B.1: clean, heat, cool)."""
LOOSE = "not_inreceptacle"


class Physics(msgspec.Struct, frozen=True):
    """The predicates that a PDDL domain and problem ask for and change."""

    asked: tuple[str, ...]
    """In preconditions, axioms and the goal."""
    changed: tuple[str, ...]
    """By any effect."""
    conditional: dict[str, tuple[str, ...]]
    """Changed under a condition -> what the condition asks for."""


def physics(task: Any) -> Physics:
    """Reads a task as fast_downward parsed it (fast_downward.translate.pddl.Task)."""
    asked = _predicates(task.goal)
    changed: set[str] = set()
    conditional: dict[str, set[str]] = defaultdict(set)
    for axiom in task.axioms:
        asked |= _predicates(axiom.condition)
    for action in task.actions:
        asked |= _predicates(action.precondition)
        for effect in action.effects:
            predicate = effect.literal.predicate
            changed.add(predicate)
            condition = _predicates(effect.condition)
            # An effect without a condition is what TextWorld's facts do follow.
            if condition:
                conditional[predicate] |= condition
    return Physics(
        asked=tuple(sorted(asked)),
        changed=tuple(sorted(changed)),
        conditional={
            predicate: tuple(sorted(condition))
            for predicate, condition in conditional.items()
        },
    )


def _predicates(condition: Any) -> set[str]:
    predicates = {condition.predicate} if hasattr(condition, "predicate") else set()
    for part in condition.parts:
        predicates |= _predicates(part)
    return predicates


def relevant(world: Physics, predicates: Collection[str]) -> frozenset[str]:
    """Names of the facts, `not_x` among them, that can change and matter.

    `predicates` are those of the grammar. Raises EngineError for a domain where such a
    fact changes under a condition: TextWorld's facts do not follow that, so they cannot
    be a key.
    """
    asked = {*world.asked, *predicates}
    # TextWorld keeps what became false as a fact of its own, `not_x`.
    negated = {f"not_{name}" for name in world.changed}
    names = asked & negated.union(world.changed)
    for name in sorted(world.conditional):
        if name in names or f"not_{name}" in names:
            raise EngineError(
                f"this game changes {name!r} under a condition; state keys do not "
                "cover such a domain"
            )
    return frozenset(names)


def crowded(facts: Iterable[Fact]) -> frozenset[str]:
    """Receptacles that share a location, or have several."""
    receptacles_at: dict[str, set[str]] = defaultdict(set)
    locations_of: dict[str, set[str]] = defaultdict(set)
    for name, *arguments in facts:
        if name == "receptacleatlocation":
            receptacle, location = arguments
            receptacles_at[location].add(receptacle)
            locations_of[receptacle].add(location)
    several = set()
    for receptacle, locations in locations_of.items():
        if len(locations) > 1:
            several.add(receptacle)
    for receptacles in receptacles_at.values():
        if len(receptacles) > 1:
            several |= receptacles
    return frozenset(several)


def matters(fact: Fact, names: Collection[str], shared: Collection[str]) -> bool:
    """Whether a fact belongs in a key, given relevant() and crowded().

    The first time something becomes false, TextWorld gains a fact `not_x`. The grammar
    asks for `not_inreceptacle` alone, to list what lies loose where the agent looks.
    """
    if fact[0] != LOOSE:
        return fact[0] in names
    # Where a location has one receptacle, a thing taken from it has left the location,
    # and whatever is put down there lies in it. Nobody can see the fact then, and
    # without it an object that was put back gives the old state again.
    return LOOSE in names and fact[2] in shared


def fingerprint(fact: Fact) -> int:
    """64 bits of one fact.

    A set has the exclusive or of its facts', so a change costs what it changes.
    """
    text = "\t".join(fact).encode()
    # 64 bits: two of a million states of a game collide with a chance of 3e-8.
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def describe(facts: Iterable[Fact], mark: int) -> str:
    """The exact key of a state, from its facts that matter and their fingerprint.

    `facts` may leave out what is not in READABLE.
    """
    # Sorted, so that the order in which facts arose does not show.
    held = []
    done = []
    for name, *arguments in sorted(facts):
        if name == "holds":
            held.append(arguments[1])
        elif name in LABELS:
            done.append(f"{LABELS[name]} {arguments[0]}")
    return (
        f"[inventory] {', '.join(held) or 'nothing'}\n"
        f"[properties] {', '.join(done) or 'none'}\n"
        f"[facts] {mark:016x}"
    )


def state_key(facts: Collection[Fact]) -> str:
    """The exact key of a state, from its facts that matter."""
    return describe(facts, reduce(operator.xor, map(fingerprint, facts), 0))


def inventory(facts: Iterable[Fact]) -> str:
    """The part of a canonical state that follows the observation (RewardFlow B.1).

    It says what is carried, " You are carrying: a mug 1 [cleaned].", and then what else
    was treated, wherever it lies now.
    """
    held = []
    treated: dict[str, str] = {}
    for name, *arguments in sorted(facts):
        if name == "holds":
            held.append(arguments[1])
        elif name in TREATMENTS:
            thing = arguments[0]
            treated.setdefault(thing, thing)
            treated[thing] += f" [{LABELS[name]}]"
    carried = ", ".join(_with_article(treated.pop(thing, thing)) for thing in held)
    elsewhere = ", ".join(treated[thing] for thing in sorted(treated))
    text = (
        f" You are carrying: {carried}." if held else " You are not carrying anything."
    )
    return f"{text} Elsewhere: {elsewhere}." if elsewhere else text


def _with_article(thing: str) -> str:
    return f"an {thing}" if thing[0] in "aeiou" else f"a {thing}"
