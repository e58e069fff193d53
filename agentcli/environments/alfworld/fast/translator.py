"""Translates one PDDL problem for the planner.

The planner's own translator does the work, once per problem and without the second,
optimised translation that only a planner's search would need. TextWorld does it twice,
two ways, at every load and every reset.
"""

import gc
import re
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from agentcli.environments.alfworld import statekey
from agentcli.environments.alfworld.fast import library
from agentcli.environments.alfworld.fast.cache import Cache
from agentcli.environments.alfworld.fast.facts import FactTable, numbers
from agentcli.environments.alfworld.fast.translation import (
    Parameters,
    Scope,
    Signature,
    Translation,
)
from agentcli.environments.alfworld.names import display_names
from agentcli.errors import DataError, EngineError

_ATOM = re.compile(r"(Negated)?Atom ([^(]+)\((.*)\)")
Ground = tuple[str, tuple[str, ...]]
"""A predicate and its arguments."""


def load_translation(domain: str, problem: str, cache: Cache) -> Translation:
    """The translation of a problem; translated where the cache does not have it. Raises
    DataError for PDDL that the planner's translator refuses.
    """
    return cache.get(Translation, (domain, problem), lambda: translate(domain, problem))


@contextmanager
def undisturbed() -> Iterator[None]:
    """The translator overwrites sys.argv, and spends a third of its time in the garbage
    collector.
    """
    argv, collecting = sys.argv, gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        sys.argv = argv
        if collecting:
            gc.enable()


def translate(domain: str, problem: str) -> Translation:
    """Translates one PDDL problem; takes a good tenth of a second."""
    import fast_downward

    with undisturbed():
        try:
            task, sas = fast_downward.pddl2sas(domain, problem)
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
        self.operators: list[str] = []
        self.most_effects = 0

    def build(self) -> Translation:
        given = {atom for atom in map(_initial, self.task.init) if atom}
        starts = [
            position
            for position, line in enumerate(self.lines)
            if line == "begin_variable"
        ]
        changing = {_parse(self.lines[start + 4])[0] for start in starts}
        if any(
            name not in self.index for _, arguments in changing for name in arguments
        ):
            raise DataError(
                "pddl_problem: the planner sees at once that the goal holds already "
                "or never can; no game"
            )
        signatures = self._signatures(given | changing)
        atoms = [
            (group.predicate, tuple(self.entities[thing] for thing in arguments))
            for group in signatures
            for arguments in group.atoms()
        ]
        number = {atom: position for position, atom in enumerate(atoms)}
        schemas = {action.name: action for action in self.task.actions}
        for start in starts:
            self._shorten_variable(start, number)
        self._shorten_operators(
            {
                name: (k, _parameters(action))
                for k, (name, action) in enumerate(schemas.items())
            }
        )
        sas = "\n".join(self.lines).encode()
        initial = {number[atom] for atom in given} | _true_at_start(sas)
        translation = Translation(
            sas=sas,
            entities=self.entities,
            types=[self.type_of[name] for name in self.entities],
            displays=self._displays(
                {name for position in initial for name in atoms[position][1]}
            ),
            hierarchy=list(
                {
                    kind.name: tuple(kind.supertype_names)
                    for kind in reversed(self.task.types)
                }.items()
            )[::-1],
            signatures=signatures,
            changing=_bits({number[atom] for atom in changing}),
            initial=_bits(initial),
            actions=[
                Parameters(name, _parameters(action))
                for name, action in schemas.items()
            ],
            operators="\n".join(self.operators),
            most_effects=self.most_effects,
            physics=statekey.physics(self.task),
        )
        return _with_marks(translation)

    def _signatures(self, atoms: set[Ground]) -> list[Signature]:
        groups: dict[tuple[str, tuple[str, ...]], list[tuple[int, ...]]] = defaultdict(
            list
        )
        for predicate, arguments in sorted(atoms):
            types = tuple(self.type_of[name] for name in arguments)
            groups[predicate, types].append(
                tuple(self.index[name] for name in arguments)
            )
        return [
            Signature(
                predicate,
                types,
                array("H", [thing for atom in atoms for thing in atom]).tobytes(),
                len(atoms),
            )
            for (predicate, types), atoms in sorted(groups.items())
        ]

    def _shorten_variable(self, start: int, number: dict[Ground, int]) -> None:
        """Names both values of a two-valued variable by the number of its atom."""
        if self.lines[start + 3] != "2":
            raise DataError(
                "pddl_problem: the planner's translator merged facts; its options "
                "are not TextWorld's"
            )
        for line in (start + 4, start + 5):
            atom, negated = _parse(self.lines[line])
            self.lines[line] = f"{'n' if negated else 'a'}{number[atom]}"

    def _shorten_operators(self, schemas: dict[str, tuple[int, Scope]]) -> None:
        """Takes the names out of the operators and counts their effects."""
        for start, line in enumerate(self.lines):
            if line == "begin_operator":
                name, *arguments = self.lines[start + 1].split()
                position, parameters = schemas[name]
                for argument, (_, kind) in zip(arguments, parameters, strict=False):
                    if self.type_of[argument] != kind:
                        raise EngineError(
                            f"action {name!r} takes subtypes of {kind!r}; play this "
                            "game with engine: stock"
                        )
                self.operators.append(
                    " ".join(
                        map(
                            str, (position, *(self.index[thing] for thing in arguments))
                        )
                    )
                )
                self.lines[start + 1] = "o"
                effects = start + 3 + int(self.lines[start + 2])
                self.most_effects = max(self.most_effects, int(self.lines[effects]))

    def _displays(self, shown: set[str]) -> list[str]:
        """alfworld's names: numbered where the PDDL name has parts, else the name and a
        blank.
        """
        numbered = display_names([name for name in shown if "_bar_" in name])
        return [numbered.get(name, f"{_unmangled(name)} ") for name in self.entities]


def _with_marks(translation: Translation) -> Translation:
    """Adds what state keys need of every loaded game."""
    table = FactTable(translation, sentence="")
    shared = statekey.crowded(
        table.listed(table.initial & table.block("receptacleatlocation"))
    )
    loose = table.changing & table.block("inreceptacle")
    seen = {number for number in numbers(loose) if table.fact(number)[2] in shared}
    at_start = table.initial & table.changing
    marks = {
        name: table.mark(at_start & table.block(name))
        for name in sorted({s.predicate for s in table.signatures})
    }
    return msgspec.structs.replace(translation, loose=_bits(seen), marks=marks)


def _initial(statement: Any) -> Ground | None:
    """What TextWorld makes a fact of a line of (:init)."""
    if hasattr(statement, "predicate"):
        return (
            None
            if statement.predicate == "="
            else (statement.predicate, tuple(statement.args))
        )
    value = str(statement.expression.value)
    if statement.fluent.symbol == "total-cost" or value.isdigit():
        return None
    return value, tuple(statement.fluent.args)


def _parse(text: str) -> tuple[Ground, bool]:
    """An atom as the translator writes it, and whether it is negated."""
    match = _ATOM.fullmatch(text)
    if match is None:
        raise DataError(
            f"pddl_problem: the planner has a fact {text!r} that that is no atom"
        )
    return (match[2], tuple(filter(None, match[3].split(", ")))), match[1] is not None


def _true_at_start(sas: bytes) -> set[int]:
    """Atoms that the planner holds true in its initial state, derived ones included."""
    planner = library.borrow()
    planner.load(sas)
    names = planner.atoms()
    library.give_back(planner)
    return {int(name[1:]) for name in names if name[0] == "a"}


def _parameters(action: Any) -> Scope:
    return tuple(
        (parameter.name.strip("?"), parameter.type_name)
        for parameter in action.parameters
    )


def _bits(numbers: set[int]) -> bytes:
    value = sum(1 << number for number in numbers)
    return value.to_bytes(value.bit_length() // 8 + 1, "little")


def _unmangled(name: str) -> str:
    for code, character in (
        ("_minus_", "-"),
        ("_plus_", "+"),
        ("_dot_", "."),
        ("_comma_", ","),
    ):
        name = name.replace(code, character)
    return name
