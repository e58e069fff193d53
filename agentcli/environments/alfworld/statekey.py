"""Two texts per state: the exact key of the true state, and the papers' canonical
state.

The exact key is what the agent holds, what was done to things, and a hash over every
fact that can still change and still matter: equal keys mean an equal future. What was
read last is not in it, so an action that changed nothing leaves the key as it was. The
canonical state is f(s) of RewardFlow (002 B.1, Fig. 11): the observation, the
inventory, and what was cleaned, heated or cooled. It is what the agent knows of its
situation, so it merges what only looks the same. What was treated and put down is named
too ("Elsewhere: mug 1 [cleaned]"), which the paper's figure has no case of.

A fact matters if an action's precondition, the goal or the text grammar asks for its
predicate. Facts that nothing asks for (which receptacle was ever examined, say) would
only split equal states, and so would the number of steps: neither is in a key.

TextWorld's facts depend on the past: the first time something becomes false it gains a
fact `not_x`, and the grammar asks for one of them, `not_inreceptacle`, to list what
lies loose at a place that the agent looks at. That fact can only be seen where two
receptacles share a location: an object that was taken from the only receptacle of a
location has left the location too, and whatever is put down there lies in that
receptacle. All other `not_inreceptacle` facts are left out, so that an object put back
where it was gives the old state again.
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
"""(predicate, argument, ...) under display names."""

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
"""Properties that a canonical state names (002 B.1: clean, heat, cool)."""
LOOSE = "not_inreceptacle"


class Physics(msgspec.Struct, frozen=True):
    """What a PDDL domain and problem ask for and change, by predicate."""

    asked: tuple[str, ...]
    """In preconditions, axioms and the goal."""
    changed: tuple[str, ...]
    """By any effect."""
    conditional: dict[str, tuple[str, ...]]
    """Changed under a condition -> what the condition asks for."""


def physics(task: Any) -> Physics:
    """Reads a task as fast_downward parsed it (fast_downward.translate.pddl.Task)."""
    asked = {*_predicates(task.goal)}
    for condition in [action.precondition for action in task.actions] + [
        axiom.condition for axiom in task.axioms
    ]:
        asked.update(_predicates(condition))
    changed: set[str] = set()
    conditional: dict[str, set[str]] = defaultdict(set)
    for effect in (effect for action in task.actions for effect in action.effects):
        changed.add(effect.literal.predicate)
        asks = _predicates(effect.condition)
        if asks:
            conditional[effect.literal.predicate].update(asks)
    return Physics(
        tuple(sorted(asked)),
        tuple(sorted(changed)),
        {k: tuple(sorted(v)) for k, v in conditional.items()},
    )


def _predicates(condition: Any) -> set[str]:
    found = {condition.predicate} if hasattr(condition, "predicate") else set()
    return found.union(*(_predicates(part) for part in condition.parts))


def relevant(world: Physics, queries: Iterable[Collection[Any]]) -> frozenset[str]:
    """Names of the facts, `not_x` among them, that can change and matter.

    `queries` are the grammar's, each a collection of (predicate, placeholders). Raises
    EngineError for a domain where such a fact changes under a condition: TextWorld's
    facts do not follow that, so they cannot be a key.
    """
    names = {*world.asked}
    for query in queries:
        names.update(atom[0] for atom in query)
    changing = names & {*world.changed, *(f"not_{name}" for name in world.changed)}
    unclear = sorted(
        name
        for name in world.conditional
        if name in changing or f"not_{name}" in changing
    )
    if unclear:
        raise EngineError(
            f"this game changes {unclear[0]!r} under a condition; state keys do not "
            "cover such a domain"
        )
    return frozenset(changing)


def crowded(facts: Iterable[Fact]) -> frozenset[str]:
    """Receptacles where `not_inreceptacle` can be seen: they share a location, or have
    several.
    """
    there: dict[str, set[str]] = defaultdict(set)
    places: dict[str, set[str]] = defaultdict(set)
    for name, *arguments in facts:
        if name == "receptacleatlocation":
            there[arguments[1]].add(arguments[0])
            places[arguments[0]].add(arguments[1])
    shared = {
        receptacle for group in there.values() if len(group) > 1 for receptacle in group
    }
    return frozenset(
        shared
        | {receptacle for receptacle, locations in places.items() if len(locations) > 1}
    )


def matters(fact: Fact, names: Collection[str], shared: Collection[str]) -> bool:
    """Whether a fact belongs in a key, given relevant() and crowded()."""
    return fact[0] in names and (fact[0] != LOOSE or fact[2] in shared)


def fingerprint(fact: Fact) -> int:
    """64 bits of one fact. A set of facts has the exclusive or of its facts', so a
    change costs what it changes.
    """
    return int.from_bytes(
        hashlib.blake2b("\t".join(fact).encode(), digest_size=8).digest(), "big"
    )


def describe(shown: Iterable[Fact], mark: int) -> str:
    """The exact key. `mark` is the fingerprint of all facts that matter; `shown` are
    those of them that are in READABLE, in any order.
    """
    ordered = sorted(shown)
    held = ", ".join(fact[2] for fact in ordered if fact[0] == "holds") or "nothing"
    done = (
        ", ".join(
            f"{LABELS[fact[0]]} {fact[1]}" for fact in ordered if fact[0] in LABELS
        )
        or "none"
    )
    return f"[inventory] {held}\n[properties] {done}\n[facts] {mark:016x}"


def state_key(facts: Iterable[Fact]) -> str:
    """The exact key of a state, from the facts that matter (see matters())."""
    matter = list(facts)
    mark = reduce(operator.xor, map(fingerprint, matter), 0)
    return describe((fact for fact in matter if fact[0] in READABLE), mark)


def inventory(shown: Iterable[Fact]) -> str:
    """What a canonical state adds to the observation: " You are carrying: a mug 1
    [cleaned]." or that nothing is carried, then what else was treated, wherever it lies
    now.
    """
    facts = sorted(shown)
    treated: dict[str, list[str]] = {}
    for name, *arguments in facts:
        if name in TREATMENTS:
            treated.setdefault(arguments[0], []).append(LABELS[name])
    held = [fact[2] for fact in facts if fact[0] == "holds"]
    listed = ", ".join(
        _with_article(_marked(thing, treated.pop(thing, []))) for thing in held
    )
    carried = (
        f" You are carrying: {listed}." if held else " You are not carrying anything."
    )
    elsewhere = ", ".join(
        _marked(thing, words) for thing, words in sorted(treated.items())
    )
    return f"{carried} Elsewhere: {elsewhere}." if elsewhere else carried


def _marked(thing: str, words: list[str]) -> str:
    return " ".join([thing, *(f"[{word}]" for word in words)])


def _with_article(thing: str) -> str:
    return f"an {thing}" if thing[0] in "aeiou" else f"a {thing}"
