"""The generated corpus: an article for each thing of the almanac."""

import random
from functools import lru_cache

from agentcli.records.files import derive_seed
from agentcli.worlds.search_qa.almanac import Entity, almanac
from agentcli.worlds.search_qa.retrievers.protocol import Document

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
