"""Translates one PDDL problem for the planner.

The planner's own translator does the work, once per problem and without the second,
optimised translation that only a planner's search would need. TextWorld does it twice,
two ways, at every load and every reset.
"""

import gc
import re
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from agentcli.errors import DataError, EngineError
from agentcli.worlds.alfworld import statekey
from agentcli.worlds.alfworld.fast import library
from agentcli.worlds.alfworld.fast.facts import (
    FactTable,
    Parameters,
    Scope,
    Signature,
    Supertypes,
    Translation,
    numbers,
)
from agentcli.worlds.alfworld.names import display_names, unmangle

_ATOM = re.compile(r"(Negated)?Atom ([^(]+)\((.*)\)")
Ground = tuple[str, tuple[str, ...]]
"""A predicate and its arguments, or their types."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keeps sys.argv, and holds back the garbage collector.

    The translator overwrites the one and spends a third of its time in the other.
    """
    arguments = sys.argv
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        sys.argv = arguments
        if collecting:
            gc.enable()


def translate(domain: str, problem: str) -> Translation:
    """Translates one PDDL problem; takes a good tenth of a second.

    Raises DataError for PDDL that the planner's translator refuses.
    """
    import fast_downward

    with undisturbed():
        try:
            task, sas = fast_downward.pddl2sas(domain, problem)
        # The translator exits for some faults, and raises anything for others.
        except (Exception, SystemExit) as error:
            raise DataError(
                "pddl_problem: the planner's translator refuses it "
                f"({type(error).__name__}: {error})"
            ) from error
    return _Builder(task, sas).build()


class _Builder:
    """Turns the translator's objects and text into a Translation."""

    def __init__(self, task: Any, sas: str) -> None:
        self.task = task
        self.lines = sas.split("\n")
        self.type_of = {thing.name: thing.type_name for thing in task.objects}
        self.entities = sorted(self.type_of)
        self.index = {name: position for position, name in enumerate(self.entities)}
        self.parameters = {action.name: _parameters(action) for action in task.actions}
        self.position = {name: number for number, name in enumerate(self.parameters)}
        self.operators: list[str] = []
        self.most_effects = 0

    def build(self) -> Translation:
        given = {atom for atom in map(_initial, self.task.init) if atom}
        variables = self._starts("begin_variable")
        changing = {self._atom(start + 4)[0] for start in variables}
        self._refuse_trivial(changing)
        signatures = self._signatures(given | changing)
        atoms = []
        for signature in signatures:
            for things in signature.atoms():
                names = tuple(self.entities[thing] for thing in things)
                atoms.append((signature.predicate, names))
        number_of = {atom: number for number, atom in enumerate(atoms)}
        for start in variables:
            self._shorten_variable(start, number_of)
        for start in self._starts("begin_operator"):
            self._shorten_operator(start)
        sas = "\n".join(self.lines).encode()
        initial = {number_of[atom] for atom in given} | _true_at_start(sas)
        visible = {name for number in initial for name in atoms[number][1]}
        translation = Translation(
            sas=sas,
            entities=self.entities,
            types=[self.type_of[name] for name in self.entities],
            displays=self._displays(visible),
            hierarchy=self._hierarchy(),
            signatures=signatures,
            changing=_bits({number_of[atom] for atom in changing}),
            initial=_bits(initial),
            actions=[Parameters(*schema) for schema in self.parameters.items()],
            operators="\n".join(self.operators),
            most_effects=self.most_effects,
            physics=statekey.physics(self.task),
        )
        return _with_marks(translation)

    def _starts(self, heading: str) -> list[int]:
        """Numbers of the lines with which a kind of section begins."""
        return [number for number, line in enumerate(self.lines) if line == heading]

    def _atom(self, number: int) -> tuple[Ground, bool]:
        """The atom on a line as the translator writes it, and whether it is negated."""
        text = self.lines[number]
        match = _ATOM.fullmatch(text)
        if match is None:
            raise DataError(
                f"pddl_problem: the planner has a fact {text!r} that is not an atom"
            )
        negated, predicate, arguments = match.groups()
        things = tuple(filter(None, arguments.split(", ")))
        return (predicate, things), negated is not None

    def _refuse_trivial(self, changing: set[Ground]) -> None:
        """Raises DataError where the translator has put a constant for the goal."""
        for _, things in changing:
            if not self.index.keys() >= set(things):
                raise DataError(
                    "pddl_problem: the planner sees at once that the goal holds "
                    "already or never can; no game"
                )

    def _signatures(self, atoms: set[Ground]) -> list[Signature]:
        # Two bytes a thing: a game has a few hundred of them.
        arguments: dict[Ground, array[int]] = defaultdict(lambda: array("H"))
        counts: Counter[Ground] = Counter()
        for predicate, things in sorted(atoms):
            key = predicate, tuple(self.type_of[name] for name in things)
            arguments[key].extend(self.index[name] for name in things)
            counts[key] += 1
        signatures = []
        for key in sorted(counts):
            predicate, types = key
            packed = arguments[key].tobytes()
            signatures.append(Signature(predicate, types, packed, counts[key]))
        return signatures

    def _shorten_variable(self, start: int, number_of: dict[Ground, int]) -> None:
        """Names both values of a two-valued variable by the number of its atom."""
        if self.lines[start + 3] != "2":
            raise DataError(
                "pddl_problem: the planner's translator merged facts; its options "
                "are not TextWorld's"
            )
        for line in (start + 4, start + 5):
            atom, negated = self._atom(line)
            sign = "n" if negated else "a"
            self.lines[line] = f"{sign}{number_of[atom]}"

    def _shorten_operator(self, start: int) -> None:
        """Takes the names out of an operator and counts its effects."""
        name, *things = self.lines[start + 1].split()
        # An action's inner variables come after the parameters that its name shows.
        for thing, (_, kind) in zip(things, self.parameters[name], strict=False):
            if self.type_of[thing] != kind:
                raise EngineError(
                    f"action {name!r} takes subtypes of {kind!r}; play this "
                    "game with engine: stock"
                )
        numbers = [self.position[name]]
        numbers += [self.index[thing] for thing in things]
        self.operators.append(" ".join(map(str, numbers)))
        self.lines[start + 1] = "o"
        effects = start + 3 + int(self.lines[start + 2])
        self.most_effects = max(self.most_effects, int(self.lines[effects]))

    def _displays(self, visible: set[str]) -> list[str]:
        """alfworld's words: with a number where the name has parts, else a blank."""
        words = display_names([name for name in visible if "_bar_" in name])
        return [words.get(name, f"{unmangle(name)} ") for name in self.entities]

    def _hierarchy(self) -> list[Supertypes]:
        """Types and their supertypes. Of several definitions the first counts."""
        supertypes: dict[str, tuple[str, ...]] = {}
        for kind in reversed(self.task.types):
            supertypes[kind.name] = tuple(kind.supertype_names)
        return list(reversed(supertypes.items()))


def _with_marks(translation: Translation) -> Translation:
    """Adds what state keys need of every loaded game."""
    table = FactTable(translation, sentence="")
    placed = table.listed(table.initial & table.block("receptacleatlocation"))
    shared = statekey.crowded(placed)
    inside = table.changing & table.block("inreceptacle")
    loose = set()
    for number in numbers(inside):
        _, _, receptacle = table.fact(number)
        if receptacle in shared:
            loose.add(number)
    at_start = table.initial & table.changing
    predicates = sorted({signature.predicate for signature in table.signatures})
    return msgspec.structs.replace(
        translation,
        loose=_bits(loose),
        marks={name: table.mark(at_start & table.block(name)) for name in predicates},
    )


def _initial(statement: Any) -> Ground | None:
    """The fact that TextWorld makes of a line of (:init), if any."""
    if hasattr(statement, "predicate"):
        if statement.predicate == "=":
            return None
        return statement.predicate, tuple(statement.args)
    value = str(statement.expression.value)
    if statement.fluent.symbol == "total-cost" or value.isdigit():
        return None
    return value, tuple(statement.fluent.args)


def _true_at_start(sas: bytes) -> set[int]:
    """Atoms that the planner holds true in its initial state, derived ones included."""
    planner = library.borrow()
    planner.load(sas)
    names = planner.atoms()
    library.give_back(planner)
    return {int(name[1:]) for name in names if name[0] == "a"}


def _parameters(action: Any) -> Scope:
    return tuple((one.name.strip("?"), one.type_name) for one in action.parameters)


def _bits(numbers: set[int]) -> bytes:
    value = sum(1 << number for number in numbers)
    return value.to_bytes(value.bit_length() // 8 + 1, "little")
