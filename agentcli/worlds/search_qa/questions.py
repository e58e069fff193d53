"""Questions about the generated corpus, of one hop and of two.

A question begins at one thing, and that thing decides its split: no held-out question
begins where one of training begins. Later hops are not held out: the second hop of a
held-out question may be a one-hop question of training.
"""

import random
import re
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from agentcli.environments.protocol import PLACE
from agentcli.errors import UsageError
from agentcli.records.files import derive_seed
from agentcli.worlds.generated import split_of
from agentcli.worlds.search_qa.almanac import RELATIONS, Entity, almanac
from agentcli.worlds.search_qa.options import SearchQaOptions


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
