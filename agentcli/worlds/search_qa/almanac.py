"""An invented world of linked things, and the generated corpus: an article for each."""

import random
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

from agentcli.records.files import derive_seed
from agentcli.worlds.generated import invented_names
from agentcli.worlds.search_qa.retrievers import Document

RELATIONS = {
    "person": {
        "birthplace": "town",
        "teacher": "person",
        "rival": "person",
        "employer": "company",
    },
    "town": {
        "mayor": "person",
        "twin": "town",
        "architect": "person",
        "brewery": "company",
    },
    "company": {
        "founder": "person",
        "seat": "town",
        "supplier": "company",
        "director": "person",
    },
    "book": {
        "author": "person",
        "publisher": "company",
        "setting": "town",
        "translator": "person",
    },
}
"""Kind of thing -> its relations, each with the kind of thing that it leads to. A
relation belongs to one kind.
"""
ORDER = ("person", "town", "person", "company", "book")
"""The kinds take turns in this order."""
SHARED = 3
"""Names that two words of the pool could make, for each that is taken: so words are
shared, and half a name leads to other things.
"""


class Entity(NamedTuple):
    """One thing."""

    name: str
    """Two words; no other thing has both."""
    kind: str
    links: dict[str, int]
    """Relation -> the place of another thing in the almanac."""


@lru_cache(maxsize=4)
def almanac(number: int, seed: int) -> tuple[Entity, ...]:
    """The things; drawn once in a process, the same in every one."""
    rng = random.Random(derive_seed("search_qa", "almanac", seed, number))
    names = _pairs(rng, number)
    kinds = [ORDER[place % len(ORDER)] for place in range(number)]
    by_kind: dict[str, list[int]] = {}
    for place, kind in enumerate(kinds):
        by_kind.setdefault(kind, []).append(place)
    things = []
    for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        links = {}
        for relation, target in RELATIONS[kind].items():
            links[relation] = _other(rng, by_kind[target], place)
        things.append(Entity(name, kind, links))
    return tuple(things)


def _pairs(rng: random.Random, number: int) -> list[str]:
    """Names of two words, each pair once."""
    size = isqrt(SHARED * number) + 1
    words = invented_names(rng, set(), "", 2 * size)
    pool = list(words)
    rng.shuffle(pool)
    pairs = rng.sample(range(size * size), number)
    return [f"{pool[pair % size]} {pool[size + pair // size]}" for pair in pairs]


def _other(rng: random.Random, places: list[int], place: int) -> int:
    """One of the places, but not this one."""
    drawn = rng.choice(places)
    while drawn == place:
        drawn = rng.choice(places)
    return drawn


FILLERS = (
    "Older accounts contradict each other.",
    "Much of this is still debated.",
    "Every schoolchild of the region has heard of it.",
    "A museum shows letters about it.",
    "A short film was made on the subject.",
)


@lru_cache(maxsize=4)
def corpus(number: int, seed: int) -> tuple[Document, ...]:
    """The articles, in the order of the almanac; an id is the place in it."""
    things = almanac(number, seed)
    rng = random.Random(derive_seed("search_qa", "corpus", seed, number))
    return tuple(
        Document(str(place), entity.name, _article(entity, things, rng))
        for place, entity in enumerate(things)
    )


def _article(entity: Entity, things: tuple[Entity, ...], rng: random.Random) -> str:
    sentences = [rng.choice(FILLERS)]
    for relation, place in entity.links.items():
        sentences.append(fact_sentence(relation, entity.name, things[place].name))
    rng.shuffle(sentences)
    return " ".join([f"{entity.name} is a {entity.kind}.", *sentences])


def fact_sentence(relation: str, subject: str, value: str) -> str:
    """A fact in words, e.g. "The mayor of Old Quarn is Mira Tolvane."."""
    return f"The {relation} of {subject} is {value}."
