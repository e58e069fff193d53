"""The three corpora as texts: an encyclopaedia, papers, and pages of a web.

Each holds the facts that knowledge.py puts there, among sentences that say nothing.
"""

import random
from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec

from agentcli.records.files import derive_seed
from agentcli.worlds.tool_qa.knowledge import Fact, FactBase, knowledge

FILLERS = (
    "Much about {subject} is still debated.",
    "Older accounts of {subject} contradict each other.",
    "Every schoolchild of the region has heard of {subject}.",
    "{subject} has been described many times.",
    "A museum shows a model of {subject}.",
)
SITES = ("forum", "blog", "newspaper", "shop", "club")
ACCOUNTS = (
    "A measurement",
    "A survey",
    "A review",
    "A new estimate",
    "An archive study",
)


class Publication(msgspec.Struct, frozen=True):
    """One article, page or abstract."""

    title: str
    text: str


@lru_cache(maxsize=3)
def corpus(name: str) -> tuple[Publication, ...]:
    """The documents of a corpus, in their order."""
    known = knowledge()
    rng = random.Random(derive_seed("tool_qa", "documents", name))
    documents: list[Publication] = []
    for subject, facts in _by_subject(known, name).items():
        documents += WRITERS[name](subject, facts, rng)
    return tuple(documents)


def _by_subject(known: FactBase, name: str) -> dict[str, list[Fact]]:
    """The facts that a corpus holds, for every subject of which it says anything."""
    subjects: dict[str, list[Fact]] = {}
    for fact in known.facts.values():
        facts = subjects.setdefault(fact.subject, [])
        if name in fact.places:
            facts.append(fact)
    return subjects


def sentence(fact: Fact) -> str:
    """A fact in words, e.g. "The density of Quorite is 23 kilograms per litre."."""
    value = f"{fact.value} {fact.unit}".strip()
    if fact.kind == "unit":
        return f"There are {value} {fact.name}."
    return f"The {fact.name} is {value}."


def _article(
    subject: str, facts: list[Fact], rng: random.Random
) -> Iterable[Publication]:
    """One article a subject, if anything is known of it."""
    if not facts:
        return
    kind = facts[0].kind
    opening = f"{subject} is {'an' if kind[0] in 'aeiou' else 'a'} {kind}."
    sentences = [*map(sentence, facts), rng.choice(FILLERS).format(subject=subject)]
    yield Publication(subject, " ".join([opening, *sentences]))


def _pages(
    subject: str, facts: list[Fact], rng: random.Random
) -> Iterable[Publication]:
    """A page for every fact, and one that says nothing."""
    for fact in facts:
        title = f"{rng.choice(SITES)}: {subject} and its {fact.trait}"
        noise = rng.choice(FILLERS).format(subject=subject)
        yield Publication(title, f"{noise} {sentence(fact)}")
    title = f"{rng.choice(SITES)}: all about {subject}"
    yield Publication(title, " ".join(FILLERS[:2]).format(subject=subject))


def _abstracts(
    subject: str, facts: list[Fact], rng: random.Random
) -> Iterable[Publication]:
    """A paper for every fact."""
    authors = knowledge().words["person"]
    for fact in facts:
        author = rng.choice(authors)
        title = f"{rng.choice(ACCOUNTS)} of the {fact.trait} of {subject} ({author})"
        text = f"We study {subject} with a new method. {sentence(fact)}"
        yield Publication(title, f"{text} Earlier values are discussed.")


WRITERS: dict[
    str, Callable[[str, list[Fact], random.Random], Iterable[Publication]]
] = {
    "wikipedia": _article,
    "search": _pages,
    "papers": _abstracts,
}
