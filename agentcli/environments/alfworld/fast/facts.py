"""A set of facts is one integer: bit k says that atom k is a fact, bit N + k that its
`not_` form is (N atoms).

TextWorld's facts are a set of propositions that actions add to and remove from; queries
walk through the sorted facts of a predicate. As bits, an action is two masks, a copy is
free, and two sets are compared as numbers. Atoms are numbered in TextWorld's order, so
walking through the set bits from below enumerates facts as TextWorld does.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter

from agentcli.environments.alfworld import statekey
from agentcli.environments.alfworld.fast.translation import Translation

Entities = tuple[int, ...]
PatternKey = tuple[str, tuple[str, ...], tuple[int, ...], tuple[tuple[int, int], ...]]
"""Predicate, types, places of bound arguments, (place, placeholder) of free ones."""


class Group:
    """The atoms of one signature that agree in the arguments a query has bound already."""

    __slots__ = ("mask", "new")

    def __init__(self) -> None:
        self.mask = 0
        self.new: dict[int, Entities] = {}
        """Bit length of an atom's bit -> values of the arguments that are still free.
        """

    def among(self, facts: int) -> list[Entities]:
        """The free arguments' values for every atom of the group that is a fact, in
        order.
        """
        hits = facts & self.mask
        found = []
        while hits:
            lowest = hits & -hits
            found.append(self.new[lowest.bit_length()])
            hits ^= lowest
        return found


class Pattern:
    """One conjunct of a query, compiled: which arguments are known by then, and which
    it finds.
    """

    __slots__ = ("key", "known")

    def __init__(
        self, predicate: str, types: tuple[str, ...], names: list[int], scope: int
    ) -> None:
        """`names` are placeholders as positions in the scope; those from `scope` on are
        found here.
        """
        bound = tuple(place for place, name in enumerate(names) if name < scope)
        free = tuple(
            (place, name - scope) for place, name in enumerate(names) if name >= scope
        )
        self.key: PatternKey = (predicate, types, bound, free)
        self.known: Callable[[Entities], Entities] = _picker(
            [names[place] for place in bound]
        )
        """known(entities in scope): what the bound arguments must be."""


def _picker(slots: list[int]) -> Callable[[Entities], Entities]:
    if not slots:
        return lambda scope: ()
    if len(slots) == 1:
        only = slots[0]
        return lambda scope: (scope[only],)
    return itemgetter(*slots)


class FactTable:
    """The atoms of one game and the indices that queries need, built when first asked
    for.
    """

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
        self._position: dict[tuple[str, tuple[str, ...]], int] = {}
        self.count = 0
        for position, signature in enumerate(self.signatures):
            self._starts.append(self.count)
            self._position[signature.predicate, signature.types] = position
            self.count += signature.count
        self._atoms: dict[int, list[Entities]] = {}
        self._facts: dict[int, statekey.Fact] = {}
        self._marks: dict[int, int] = {}
        self._indices: dict[PatternKey, list[dict[Entities, Group]]] = {}

    def masks(self, effects: Iterable[str]) -> tuple[int, int]:
        """(bits to keep, bits to add) of an action whose effects the planner names a<k>
        and n<k>, in that order.
        """
        removed = added = 0
        for effect in effects:
            true = 1 << int(effect[1:])
            false = true << self.count
            gained, lost = (true, false) if effect[0] == "a" else (false, true)
            removed |= lost
            added = added & ~lost | gained
        return ~removed, added

    def index(
        self, pattern: Pattern, hierarchy: "Hierarchy"
    ) -> list[dict[Entities, Group]]:
        """For each signature that the pattern covers and this game has: bound arguments
        -> atoms.
        """
        found = self._indices.get(pattern.key)
        if found is None:
            found = self._indices[pattern.key] = list(
                self._build(pattern.key, hierarchy)
            )
        return found

    def _build(
        self, key: PatternKey, hierarchy: "Hierarchy"
    ) -> Iterator[dict[Entities, Group]]:
        predicate, kinds, bound, free = key
        shift = 0
        if predicate.startswith("not_"):
            predicate, shift = predicate.removeprefix("not_"), self.count
        roles = [role for _, role in free]
        places = [
            place
            for place, role in free
            if roles.index(role) == free.index((place, role))
        ]
        for types in hierarchy.below(kinds):
            position = self._position.get((predicate, types))
            if position is None:
                continue
            groups: dict[Entities, Group] = {}
            for number, arguments in enumerate(
                self._arguments(position), self._starts[position] + shift
            ):
                new = tuple([arguments[place] for place in places])
                if len(free) > 1 and not _distinct(arguments, free, new):
                    continue
                known = tuple([arguments[place] for place in bound])
                group = groups.get(known)
                if group is None:
                    group = groups[known] = Group()
                group.mask |= 1 << number
                group.new[number + 1] = new
            yield groups

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
            block = self.block(name.removeprefix("not_")) & self.changing
            if name == statekey.LOOSE:
                block = self._loose
            mask |= block << self.count if name.startswith("not_") else block
        return mask

    def listed(self, facts: int) -> list[statekey.Fact]:
        """A fact set as (predicate, display names ...), in the order of the atoms."""
        return [self.fact(number) for number in numbers(facts)]

    def fact(self, number: int) -> statekey.Fact:
        """The fact that a bit stands for."""
        found = self._facts.get(number)
        if found is None:
            prefix, atom = (
                ("not_", number - self.count) if number >= self.count else ("", number)
            )
            position = bisect_right(self._starts, atom) - 1
            arguments = self._arguments(position)[atom - self._starts[position]]
            words = [self.names[thing] for thing in arguments]
            found = self._facts[number] = (
                prefix + self.signatures[position].predicate,
                *words,
            )
        return found

    def mark(self, facts: int) -> int:
        """statekey.fingerprint of a fact set."""
        mark = 0
        for number in numbers(facts):
            known = self._marks.get(number)
            if known is None:
                known = self._marks[number] = statekey.fingerprint(self.fact(number))
            mark ^= known
        return mark

    def _arguments(self, position: int) -> list[Entities]:
        """All atoms of a signature."""
        atoms = self._atoms.get(position)
        if atoms is None:
            atoms = self._atoms[position] = self.signatures[position].atoms()
        return atoms


def _distinct(
    arguments: Entities, free: tuple[tuple[int, int], ...], new: Entities
) -> bool:
    """Whether an atom gives one entity to each free placeholder, and another one to
    each.
    """
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

    def __init__(self, types: tuple[tuple[str, tuple[str, ...]], ...]) -> None:
        self._children: dict[str, list[str]] = {}
        for name, parents in types:
            for parent in parents:
                self._children.setdefault(parent, []).append(name)
        for children in self._children.values():
            children.sort()

    def below(self, types: tuple[str, ...]) -> list[tuple[str, ...]]:
        """The types themselves, then every tuple of subtypes, breadth first."""
        found = [types]
        seen: set[tuple[str, ...]] = set()
        waiting = deque(self._narrowed(types))
        while waiting:
            current = waiting.popleft()
            found.append(current)
            for narrower in self._narrowed(current):
                if narrower not in seen:
                    seen.add(narrower)
                    waiting.append(narrower)
        return found

    def _narrowed(self, types: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for position, kind in enumerate(types):
            for child in self._children.get(kind, ()):
                yield (*types[:position], child, *types[position + 1 :])
