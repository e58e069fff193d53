"""The invented knowledge of the embedded default: who knows what, and where it stands.

Every fact lies in one or more of four places: the table of facts, the encyclopaedia,
the collection of papers and the web. Which ones is drawn, so that each tool has gaps,
and another tool often fills them. It never changes: a task means the same for ever.
"""

import random
from functools import lru_cache

import msgspec

from agentcli.records.files import derive_seed
from agentcli.worlds.generated import invented_names
from agentcli.worlds.tool_qa.kinds import FACTORS, KINDS, Kind, Property

SUBJECTS = 20
"""Things of each kind."""
PLACES = {"facts": 0.6, "wikipedia": 0.6, "search": 0.5, "papers": 0.4}
"""Tool -> the share of all facts that its source holds."""
WORDS_OF_A_KIND = 24
"""Names of each sort of word, e.g. of persons."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One property of one thing, and where it can be looked up."""

    subject: str
    kind: str
    trait: str
    """The name of a property."""
    value: str
    unit: str
    places: tuple[str, ...]
    """Names of the tools whose sources hold it; never empty."""

    @property
    def name(self) -> str:
        """How it is asked for, e.g. "density of Quorite"."""
        if self.kind == "unit":
            return self.trait
        return f"{self.trait} of {self.subject}"


class FactBase(msgspec.Struct, frozen=True):
    """All facts."""

    facts: dict[str, Fact]
    """By name, e.g. "density of quorite" or "kilometre per mile"."""
    subjects: dict[str, tuple[str, ...]]
    """The things of each kind."""
    words: dict[str, tuple[str, ...]]
    """The values that a property of words may have, by what they name."""


@lru_cache(maxsize=1)
def knowledge() -> FactBase:
    """The knowledge; drawn once in a process, the same in every one."""
    rng = random.Random(derive_seed("tool_qa", "knowledge"))
    taken: set[str] = set()
    words: dict[str, tuple[str, ...]] = {}
    subjects: dict[str, tuple[str, ...]] = {}
    facts: dict[str, Fact] = {}
    for kind in KINDS:
        for property in kind.properties:
            if not property.is_number and property.unit not in words:
                words[property.unit] = invented_names(rng, taken, "", WORDS_OF_A_KIND)
    for kind in KINDS:
        subjects[kind.name] = invented_names(rng, taken, kind.ending, SUBJECTS)
        for subject in subjects[kind.name]:
            for property in kind.properties:
                fact = _fact(rng, kind, property, subject, words)
                facts[fact.name] = fact
    for (unit, other), factor in FACTORS.items():
        name = f"{other} per {unit}"
        facts[name] = Fact(
            subject=unit,
            kind="unit",
            trait=name,
            value=factor,
            unit="",
            places=("facts", "search"),
        )
    return FactBase(facts, subjects, words)


def _fact(
    rng: random.Random,
    kind: Kind,
    property: Property,
    subject: str,
    words: dict[str, tuple[str, ...]],
) -> Fact:
    value = str(rng.randint(property.low, property.high))
    if not property.is_number:
        value = rng.choice(words[property.unit])
    places = [place for place, share in PLACES.items() if rng.random() < share]
    return Fact(
        subject=subject,
        kind=kind.name,
        trait=property.name,
        value=value,
        unit=property.unit if property.is_number else "",
        places=tuple(places) or ("search",),
    )
