"""A set of facts is one integer: bit k for atom k, bit N + k for its `not_` form.

N is the number of atoms. TextWorld's facts are a set of propositions that actions add
to and remove from; queries walk through the sorted facts of a predicate. As bits, an
action is two masks, a copy is free, and two sets are compared as numbers. Atoms are
numbered in TextWorld's order, so walking through the set bits from below enumerates
facts as TextWorld does.

A translated PDDL problem is plain data that lies on disk. The planner needs numbers
only, so it loads shortened names of atoms and operators; the full names are kept in it,
in a form that decodes fast.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from typing import NamedTuple

import msgspec

from agentcli.worlds.alfworld import statekey

Scope = tuple[tuple[str, str], ...]
"""Placeholders as (name, type)."""
Types = tuple[str, ...]
Supertypes = tuple[str, Types]
"""A type and those above it."""


class Signature(msgspec.Struct, array_like=True, frozen=True):
    """All atoms of one predicate over one tuple of types.

    Atoms are numbered through all signatures.
    """

    predicate: str
    types: Types
    arguments: bytes
    """Entity indices of all atoms' arguments as 16-bit integers, atoms sorted (the
    order of TextWorld's facts).
    """
    count: int

    def atoms(self) -> list[tuple[int, ...]]:
        """Each atom's arguments as entity indices."""
        if not self.types:
            return [()] * self.count
        flat = iter(memoryview(self.arguments).cast("H").tolist())
        return list(zip(*[flat] * len(self.types), strict=True))


class Parameters(msgspec.Struct, array_like=True, frozen=True):
    """An action schema: its PDDL name and its parameters as (name, type)."""

    action: str
    parameters: Scope


class Translation(msgspec.Struct, array_like=True, frozen=True):
    """One problem: what the planner loads, and what its numbers mean."""

    sas: bytes
    """Atoms are named a<number> and n<number> (negated), operators not at all."""
    entities: list[str]
    """PDDL names, sorted."""
    types: list[str]
    displays: list[str]
    """Names shown to the agent."""
    hierarchy: list[Supertypes]
    """First definitions first."""
    signatures: list[Signature]
    changing: bytes
    """Bit per atom (little endian): whether the planner has a variable for it."""
    initial: bytes
    """Bit per atom: whether it is a fact at the start."""
    actions: list[Parameters]
    operators: str
    """A line per operator: index into actions, then entity indices. Several operators
    can share a name.
    """
    most_effects: int
    physics: statekey.Physics
    loose: bytes = b""
    """Bit per atom: whether statekey.LOOSE of it can be seen."""
    marks: dict[str, int] = {}
    """Predicate -> statekey.fingerprint of those of its facts at the start that can
    change.
    """


Entities = tuple[int, ...]


@dataclass(eq=False, slots=True)
class Group:
    """The atoms of one signature that agree in the arguments a query has bound."""

    mask: int = 0
    new: dict[int, Entities] = field(default_factory=dict)
    """Bit length of an atom's bit -> values of the arguments still free."""

    def among(self, facts: int) -> list[Entities]:
        """The free arguments' values for each atom of the group that is a fact."""
        hits = facts & self.mask
        answers = []
        while hits:
            lowest = hits & -hits
            answers.append(self.new[lowest.bit_length()])
            hits ^= lowest
        return answers


Index = list[dict[Entities, Group]]
"""For each signature that a pattern covers: bound arguments -> atoms."""


class Free(NamedTuple):
    """An argument that a pattern finds."""

    place: int
    """Among the predicate's arguments."""
    role: int
    """Among the placeholders that the pattern adds to the scope."""


class Shape(NamedTuple):
    """The question of a pattern, apart from how it reads the scope."""

    predicate: str
    types: Types
    bound: tuple[int, ...]
    """Places of the arguments that are known."""
    free: tuple[Free, ...]


class Pattern:
    """One conjunct of a query, compiled: the arguments it knows and those it finds."""

    __slots__ = ("known", "shape")

    def __init__(
        self,
        predicate: str,
        types: Types,
        names: list[int],
        scope: int,
    ) -> None:
        """`names` are placeholders as positions in the scope.

        Those from `scope` on are found here.
        """
        bound = []
        free = []
        for place, name in enumerate(names):
            if name < scope:
                bound.append(place)
            else:
                free.append(Free(place, name - scope))
        self.shape = Shape(predicate, types, tuple(bound), tuple(free))
        self.known: Callable[[Entities], Entities] = _picker(
            [names[place] for place in bound]
        )
        """known(entities in scope): what the bound arguments must be."""


def _picker(slots: list[int]) -> Callable[[Entities], Entities]:
    # itemgetter wants at least one item, and gives a single one without its tuple.
    if not slots:
        return lambda scope: ()
    if len(slots) == 1:
        only = slots[0]
        return lambda scope: (scope[only],)
    return itemgetter(*slots)


class FactTable:
    """The atoms of one game, and the indices that queries need, built on demand."""

    def __init__(self, translation: Translation, sentence: str) -> None:
        self.names = translation.displays
        self.ids = translation.entities
        self.types = translation.types
        self.sentence = sentence
        self.signatures = translation.signatures
        self.initial = int.from_bytes(translation.initial, "little")
        self.changing = int.from_bytes(translation.changing, "little")
        self._loose = int.from_bytes(translation.loose, "little")
        self._starts: list[int] = []
        """Number of the first atom of each signature."""
        self._position: dict[tuple[str, Types], int] = {}
        self.count = 0
        for position, signature in enumerate(self.signatures):
            self._starts.append(self.count)
            self._position[signature.predicate, signature.types] = position
            self.count += signature.count
        self.fact = cache(self._fact)
        """The fact that a bit stands for, by the bit's number."""
        self._arguments = cache(lambda position: self.signatures[position].atoms())
        self._mark_of = cache(lambda number: statekey.fingerprint(self.fact(number)))
        self.index = cache(self._build)
        """The atoms that a question covers in this game, by the arguments it knows."""

    def masks(self, effects: Iterable[str]) -> tuple[int, int]:
        """(bits to keep, bits to add) of an action.

        The planner names its effects a<k> and n<k>, in their order.
        """
        removed = 0
        added = 0
        for effect in effects:
            gained = 1 << int(effect[1:])
            lost = gained << self.count
            if effect[0] == "n":
                gained, lost = lost, gained
            # Both forms of an atom change: what becomes false is a `not_` fact from
            # then on.
            removed |= lost
            added = added & ~lost | gained
        return ~removed, added

    def _build(self, shape: Shape, hierarchy: "Hierarchy") -> Index:
        predicate = shape.predicate.removeprefix("not_")
        shift = self.count if predicate != shape.predicate else 0
        index = []
        for types in hierarchy.below(shape.types):
            position = self._position.get((predicate, types))
            if position is not None:
                first = self._starts[position] + shift
                index.append(_groups(shape, self._arguments(position), first))
        return index

    def block(self, predicate: str) -> int:
        """Mask of all atoms of a predicate."""
        mask = 0
        for start, signature in zip(self._starts, self.signatures, strict=True):
            if signature.predicate == predicate:
                mask |= ((1 << signature.count) - 1) << start
        return mask

    def relevant(self, names: frozenset[str]) -> int:
        """Mask of the facts that belong in a state key, given statekey.relevant()."""
        mask = 0
        for name in names:
            predicate = name.removeprefix("not_")
            block = self.block(predicate) & self.changing
            if name == statekey.LOOSE:
                block = self._loose
            if name != predicate:
                block <<= self.count
            mask |= block
        return mask

    def listed(self, facts: int) -> list[statekey.Fact]:
        """A fact set as (predicate, display names ...), in the order of the atoms."""
        return [self.fact(number) for number in numbers(facts)]

    def _fact(self, number: int) -> statekey.Fact:
        negated, atom = divmod(number, self.count)
        position = bisect_right(self._starts, atom) - 1
        predicate = self.signatures[position].predicate
        things = self._arguments(position)[atom - self._starts[position]]
        words = [self.names[thing] for thing in things]
        return f"not_{predicate}" if negated else predicate, *words

    def mark(self, facts: int) -> int:
        """statekey.fingerprint of a fact set."""
        mark = 0
        for number in numbers(facts):
            mark ^= self._mark_of(number)
        return mark


def _groups(shape: Shape, atoms: list[Entities], first: int) -> dict[Entities, Group]:
    """The atoms of one signature by their bound arguments, numbered from `first` on."""
    place_of: dict[int, int] = {}
    for place, role in shape.free:
        place_of.setdefault(role, place)
    places = list(place_of.values())
    groups: dict[Entities, Group] = {}
    for number, arguments in enumerate(atoms, first):
        new = tuple([arguments[place] for place in places])
        if len(shape.free) > 1 and not _distinct(arguments, shape.free, new):
            continue
        known = tuple([arguments[place] for place in shape.bound])
        group = groups.get(known)
        if group is None:
            group = groups[known] = Group()
        group.mask |= 1 << number
        group.new[number + 1] = new
    return groups


def _distinct(arguments: Entities, free: tuple[Free, ...], new: Entities) -> bool:
    """Whether an atom gives each free placeholder one entity, each another one."""
    values = {(role, arguments[place]) for place, role in free}
    return len(values) == len(new) == len(set(new))


def numbers(bits: int) -> Iterator[int]:
    """Positions of the set bits, lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


class Hierarchy:
    """Types and what lies below them, enumerated as TextWorld does."""

    def __init__(self, types: Iterable[Supertypes]) -> None:
        self._children: dict[str, list[str]] = {}
        for name, parents in types:
            for parent in parents:
                self._children.setdefault(parent, []).append(name)
        for children in self._children.values():
            children.sort()

    def below(self, types: Types) -> list[Types]:
        """The types themselves, then every tuple of subtypes, breadth first."""
        tuples = [types]
        met: set[Types] = set()
        # TextWorld does not count the first level as met, so it enumerates some of it
        # twice.
        waiting = deque(self._narrowed(types))
        while waiting:
            current = waiting.popleft()
            tuples.append(current)
            for narrower in self._narrowed(current):
                if narrower not in met:
                    met.add(narrower)
                    waiting.append(narrower)
        return tuples

    def _narrowed(self, types: Types) -> Iterator[Types]:
        for position, kind in enumerate(types):
            for child in self._children.get(kind, ()):
                yield (*types[:position], child, *types[position + 1 :])
