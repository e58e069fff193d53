"""An invented world of linked things, its articles, and questions of one hop and of two.

A question begins at one thing, and that thing decides its split: no held-out question
begins where one of training begins. Later hops are not held out: the second hop of a
held-out question may be a one-hop question of training.
"""

import random
import re
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

import msgspec

from agentcli.environments.protocol import PLACE
from agentcli.errors import UsageError
from agentcli.records.files import derive_seed
from agentcli.records.grouping import grouped
from agentcli.worlds.generated import invented_names, split_of
from agentcli.worlds.search_qa.options import SearchQaOptions
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
    by_kind = grouped((kind, place) for place, kind in enumerate(kinds))
    things = []
    for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        links = {}
        for relation, target in RELATIONS[kind].items():
            # Never to itself: the question would hold its answer.
            links[relation] = _other(rng, by_kind[target], place)
        things.append(Entity(name, kind, links))
    return tuple(things)


def _pairs(rng: random.Random, number: int) -> list[str]:
    """Names of two words, each pair once."""
    size = isqrt(SHARED * number) + 1
    words = invented_names(rng, set(), "", 2 * size)
    # invented_names are sorted; first and second words should not be by alphabet.
    pool = list(words)
    rng.shuffle(pool)
    pairs = rng.sample(range(size * size), number)
    names = []
    for pair in pairs:
        last, first = divmod(pair, size)
        names.append(f"{pool[first]} {pool[size + last]}")
    return names


def _other(rng: random.Random, places: list[int], place: int) -> int:
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


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question."""

    id: str
    """Unique in its split."""
    question: str
    answers: tuple[str, ...]
    """Each of them is right."""
    split: str
    kind: str
    attributes: Mapping[str, str] = {}
    """What `--where` can ask for."""
    evidence: tuple[str, ...] = ()
    """Titles of the documents that lead to the answer, in order; empty: not known."""


KINDS = {1: "one hop", 2: "two hops"}
PATIENCE = 300
"""Draws after which no further question is expected."""
_FORM = re.compile(r"(?:Who|What) is the (?:(\w+) of the )?(\w+) of (\w+ \w+)\?")


class Wanted(NamedTuple):
    """What a question asks for."""

    subject: str
    relations: tuple[str, ...]
    """In the order in which they are followed."""


class Way(NamedTuple):
    """The way from what a question is about to its answer."""

    text: str
    relations: tuple[str, ...]
    names: list[str]
    """The names of all entities on the path, the answer last."""
    about: str
    """The kind of the first thing."""


@lru_cache(maxsize=8)
def generated_questions(options: SearchQaOptions, split: str) -> tuple[Question, ...]:
    """The questions of a split, each text once.

    A larger size begins with the same questions. Raises UsageError where there are too
    few.
    """
    things = almanac(options.documents, options.seed)
    subjects = [one for one in things if split_of(one.name) == split]
    rng = random.Random(derive_seed("search_qa", options.seed, split))
    ways: dict[str, Way] = {}
    while len(ways) < getattr(options.sizes, split):
        # Drawn and not in turns: every second task of a panel would be of one kind.
        way = _further(things, subjects, rng.choice(options.hops), rng, ways)
        if way is None:
            raise UsageError(
                f"{PLACE}.sizes.{split}: there are only {len(ways)} questions; ask "
                f"for fewer, or raise {PLACE}.documents"
            )
        ways[way.text] = way
    questions = []
    for index, way in enumerate(ways.values()):
        questions.append(_question(options, split, index, way))
    return tuple(questions)


def _further(
    things: Sequence[Entity],
    subjects: Sequence[Entity],
    hops: int,
    rng: random.Random,
    known: Container[str],
) -> Way | None:
    """A path of relations with a new text; None after too many repeats."""
    for _ in range(PATIENCE if subjects else 0):
        way = _way(things, rng.choice(subjects), hops, rng)
        # A path that comes back to an entity could be answered without searching on.
        if len({*way.names}) > hops and way.text not in known:
            return way
    return None


def _way(
    things: Sequence[Entity], subject: Entity, hops: int, rng: random.Random
) -> Way:
    """Follows relations; it may lead back to where it was."""
    entities = [subject]
    relations = []
    for _ in range(hops):
        relation = rng.choice(list(RELATIONS[entities[-1].kind]))
        relations.append(relation)
        entities.append(things[entities[-1].links[relation]])
    interrogative = "Who" if entities[-1].kind == "person" else "What"
    wanted = " of the ".join(reversed(relations))
    return Way(
        text=f"{interrogative} is the {wanted} of {subject.name}?",
        relations=tuple(relations),
        names=[entity.name for entity in entities],
        about=subject.kind,
    )


def _question(options: SearchQaOptions, split: str, index: int, way: Way) -> Question:
    hops = "+".join(map(str, options.hops))
    return Question(
        id=f"{options.seed}-{options.documents}-{hops}/{split}/{index}",
        question=way.text,
        answers=(way.names[-1],),
        split=split,
        kind=KINDS[len(way.relations)],
        attributes={"relations": " ".join(way.relations), "about": way.about},
        evidence=tuple(way.names[:-1]),
    )


@lru_cache(maxsize=4096)
def read_question(text: str) -> Wanted | None:
    """What a generated question asks for; None if it was not generated."""
    form = _FORM.fullmatch(text)
    if form is None:
        return None
    last, first, subject = form.groups()
    return Wanted(subject, (first, last) if last else (first,))
