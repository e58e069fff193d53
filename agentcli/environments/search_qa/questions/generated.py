"""Questions about the generated corpus, of one hop and of two.

A question is about one thing, and the thing decides its split: no held-out question is
about a thing that training asks about.
"""

import itertools
import random
import re
from functools import lru_cache
from typing import NamedTuple

from agentcli.environments.options import PLACE
from agentcli.environments.search_qa.almanac import RELATIONS, Entity, almanac
from agentcli.environments.search_qa.options import SearchQaOptions
from agentcli.environments.search_qa.questions.protocol import Question
from agentcli.environments.splitting import split_of
from agentcli.errors import UsageError
from agentcli.records.files import derive_seed

KINDS = {1: "one hop", 2: "two hops"}
PATIENCE = 300
"""Draws after which no further question is expected."""
_FORM = re.compile(r"(?:Who|What) is the (?:(\w+) of the )?(\w+) of (\w+ \w+)\?")


class Wanted(NamedTuple):
    """What a question asks for."""

    subject: str
    relations: tuple[str, ...]
    """In the order in which they are followed."""


@lru_cache(maxsize=8)
def generated_questions(options: SearchQaOptions, split: str) -> tuple[Question, ...]:
    """The questions of a split, each text once.

    A larger size begins with the same questions. Raises UsageError where there are too
    few.
    """
    things = almanac(options.documents, options.seed)
    subjects = [one for one in things if split_of(one.name) == split]
    rng = random.Random(derive_seed("search_qa", options.seed, split))
    size = getattr(options.sizes, split)
    drawn: dict[str, Question] = {}
    for hops in itertools.cycle(options.hops):
        if len(drawn) == size:
            return tuple(drawn.values())
        for _ in range(PATIENCE):
            way = _way(things, rng.choice(subjects), hops, rng) if subjects else None
            if way is not None and way[0] not in drawn:
                drawn[way[0]] = _question(options, split, len(drawn), *way)
                break
        else:
            raise UsageError(
                f"{PLACE}.sizes.{split}: there are only {len(drawn)} questions; ask "
                f"for fewer, or raise {PLACE}.documents"
            )
    raise AssertionError("options.hops is not empty")


def _way(
    things: tuple[Entity, ...], subject: Entity, hops: int, rng: random.Random
) -> tuple[str, tuple[str, ...], list[Entity]] | None:
    """A text, its relations, and the things on the way; None for a way in a circle."""
    way = [subject]
    relations = []
    for _ in range(hops):
        relation = rng.choice(list(RELATIONS[way[-1].kind]))
        relations.append(relation)
        way.append(things[way[-1].links[relation]])
    if len({entity.name for entity in way}) < len(way):
        return None
    interrogative = "Who" if way[-1].kind == "person" else "What"
    wanted = " of the ".join(reversed(relations))
    text = f"{interrogative} is the {wanted} of {subject.name}?"
    return text, tuple(relations), way


def _question(
    options: SearchQaOptions,
    split: str,
    index: int,
    text: str,
    relations: tuple[str, ...],
    way: list[Entity],
) -> Question:
    names = [entity.name for entity in way]
    return Question(
        id=f"{options.seed}-{options.documents}-{hops_name(options)}/{split}/{index}",
        question=text,
        answers=(names[-1],),
        split=split,
        kind=KINDS[len(relations)],
        attributes={"relations": " ".join(relations), "about": way[0].kind},
        evidence=tuple(names[:-1]),
    )


def hops_name(options: SearchQaOptions) -> str:
    """The kinds of questions in a task's id, e.g. "1+2"."""
    return "+".join(map(str, options.hops))


@lru_cache(maxsize=4096)
def read_question(text: str) -> Wanted | None:
    """What a generated question asks for; None for a question of another hand."""
    form = _FORM.fullmatch(text)
    if form is None:
        return None
    last, first, subject = form.groups()
    return Wanted(subject, (first, last) if last else (first,))
