"""One PDDL problem translated for the planner, as plain data that lies on disk.

The planner needs numbers only, so it loads shortened names of atoms and operators. The
full names are kept here, in a form that decodes fast.
"""

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
