"""Questions whose answers stand in a corpus that can be searched (RewardFlow, CARL).

Corpus and questions are generated, about invented things, with one hop or two. So no
model can know an answer without searching. Real questions, a corpus file or a served
retriever are used where the settings name them (source.py).

The tutor reads the generated questions and the sentences of the generated corpus. What
the agent has not been shown, neither prompt nor expert knows.
"""

import random
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from agentcli.environments.protocol import Advice, Card, Context, Exam, options_of
from agentcli.records.calls import ANSWER, COT, read_call
from agentcli.records.files import derive_seed
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.generated import SPLITS, Habits, indulges, spelled
from agentcli.worlds.search_qa.engine import (
    SearchQaEngine,
    heads_in,
    titles_in,
    tools_of,
)
from agentcli.worlds.search_qa.options import SearchQaOptions
from agentcli.worlds.search_qa.questions import (
    RELATIONS,
    Wanted,
    almanac,
    read_question,
)
from agentcli.worlds.search_qa.source import QaSource

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

FACTS_SHOWN = 3
"""Facts that the prompt mentions beside the first of the way."""
LONGEST_TEXT = 300
"""Characters of a question that was not generated, and of what was seen last."""
_FACT = re.compile(r"The (\w+) of (\w+ \w+) is (\w+ \w+)\.")
_PAGE = re.compile(r"^\[[^\]]*\] .+, part (\d+) of (\d+): ")


class SearchQaHabits(Habits, frozen=True):
    """The faults that the expert has on purpose.

    Of episodes, `forget` answers with the first thing that it learns, whatever else was
    asked, `overlook` searches for the relation without the name, and takes what it reads
    there for what was asked, and `wander` opens results in an order of its own; under
    `actions=search`, its queries then name the relation too.
    """


class Lookup(NamedTuple):
    """What an agent can know from its own past."""

    wanted: Wanted | None
    """None for a question that was not generated."""
    facts: dict[tuple[str, str], str]
    """(relation, thing) -> another thing, for the relations that are asked for; what was
    read last stands first.
    """
    results: list[str]
    """Titles of the last search."""
    opened: list[str]
    """Titles of the pages that were opened, in order; the last one is open."""
    more: bool
    """Whether the open page goes on."""
    queries: list[str]
    """What was searched for."""


def lookup_of(context: Context) -> Lookup:
    """Reads a context: the question off the instruction, the rest off what was seen."""
    wanted = read_question(context.instruction)
    asked = wanted.relations if wanted else ()
    facts: dict[tuple[str, str], str] = {}
    results: list[str] = []
    opened: list[str] = []
    more = False
    for text in context.observations:
        fresh = {}
        for relation, thing, value in _FACT.findall(text):
            if relation in asked:
                fresh[relation, thing] = value
        facts = {**fresh, **facts}
        page = _PAGE.match(text)
        titles = [title for _, title in heads_in(text)]
        if page and titles:
            opened.append(titles[0])
            more = page[1] != page[2]
        elif text.startswith("["):
            results = titles
    queries = []
    for action in context.actions:
        call = read_call(action)
        if call and call.name == "search":
            queries.append(call.argument)
    return Lookup(wanted, facts, results, opened, more, queries)


def compact(context: Context) -> str:
    """What is asked, the facts that matter, the last search and the open page."""
    lookup = lookup_of(context)
    if lookup.wanted is None:
        asked, last = context.instruction, context.observations[-1]
        return f"ask {asked[:LONGEST_TEXT]}\n{last[:LONGEST_TEXT]}"
    relations = " of ".join(reversed(lookup.wanted.relations))
    lines = [f"ask {relations} of {lookup.wanted.subject}"]
    for (relation, thing), value in _facts_shown(lookup.facts, lookup.wanted):
        lines.append(f"{relation} of {thing} is {value}")
    if lookup.queries:
        query = lookup.queries[-1][:LONGEST_TEXT]
        found = " , ".join(lookup.results) or "none"
        lines.append(f"results of {query} : {found}")
    if lookup.opened:
        rest = "more" if lookup.more else "end"
        lines.append(f"page {lookup.opened[-1]} {rest}")
    return "\n".join(lines)


def _facts_shown(
    facts: dict[tuple[str, str], str], wanted: Wanted
) -> list[tuple[tuple[str, str], str]]:
    """The first fact of the way, which stays, and what was read last."""
    first = (wanted.relations[0], wanted.subject)
    others = [pair for pair in facts.items() if pair[0] != first]
    # Without the first fact a prompt of two hops has lost its thread.
    begun = [(first, facts[first])] if first in facts else []
    return [*begun, *others[:FACTS_SHOWN]]


class _Seeker:
    """One decision: what is known, and what follows from it."""

    def __init__(
        self, lookup: Lookup, seed: int, habits: SearchQaHabits, browses: bool
    ) -> None:
        self.lookup = lookup
        self.seed = seed
        self.browses = browses
        self.forgets = indulges(habits, "forget", seed)
        self.overlooks = indulges(habits, "overlook", seed)
        self.wanders = indulges(habits, "wander", seed)

    def advice(self, wanted: Wanted) -> Advice:
        """Follows the relations as far as they are known."""
        thing, relations = wanted
        if self.forgets:
            relations = relations[:1]
        for relation in relations:
            value = self._value(relation, thing)
            if value is None:
                return self._look(relation, thing)
            thing = value
        return Advice("think", "answer", spelled(ANSWER, thing))

    def _value(self, relation: str, thing: str) -> str | None:
        facts = self.lookup.facts
        if (relation, thing) in facts or not self.overlooks:
            return facts.get((relation, thing))
        for (known, _), value in facts.items():
            if known == relation and value != thing:
                return value
        return None

    def _look(self, relation: str, thing: str) -> Advice:
        """Reads on, opens a result, or searches."""
        need = f"need {relation}"
        queries = self._queries(relation, thing)
        is_for_thing = self.lookup.queries[-1:] in [[query] for query in queries]
        if self.browses and self._reads_on(thing, is_for_thing):
            return Advice("think", need, spelled("read", "on"))
        titles = self._titles(thing, is_for_thing) if self.browses else []
        if titles:
            return Advice("explore", need, spelled("access", titles[0]))
        left = [query for query in queries if query not in self.lookup.queries]
        if left:
            return Advice("explore", need, spelled("search", left[0]))
        return Advice("explore", "guess", spelled(ANSWER, thing))

    def _queries(self, relation: str, thing: str) -> list[str]:
        queries = [thing, f"{thing} {relation}"]
        if self.wanders and not self.browses:
            queries.reverse()
        if self.overlooks:
            queries.insert(0, relation)
        return queries

    def _reads_on(self, thing: str, is_for_thing: bool) -> bool:
        """Whether the open page goes on, and is taken for that of the thing."""
        page = self.lookup.opened[-1:]
        if not self.lookup.more or not page:
            return False
        is_taken_for_it = self.overlooks and is_for_thing
        return page == [thing] or (is_taken_for_it and page[0] in self.lookup.results)

    def _titles(self, thing: str, is_for_thing: bool) -> list[str]:
        results = self.lookup.results
        left = [title for title in results if title not in self.lookup.opened]
        if self.wanders and is_for_thing and left:
            random.Random(derive_seed(self.seed, thing)).shuffle(left)
            return left
        if thing in results:
            return [thing]
        return left if self.overlooks and is_for_thing else []


def _search_or_guess(context: Context, lookup: Lookup) -> Advice:
    """Searches once for a question that was not generated, then guesses."""
    if lookup.results:
        return Advice("explore", "guess", spelled(ANSWER, lookup.results[0]))
    query = context.instruction[:LONGEST_TEXT].replace("[", "(").replace("]", ")")
    if context.actions:
        return Advice("explore", "guess", spelled(ANSWER, query))
    return Advice("explore", "look up", spelled("search", query))


class SearchQaWorld:
    """The World, its Tutor, its Toolbox, and Guiding; its answers can be judged."""

    card = Card(
        name="search_qa",
        role="You answer questions, and you can search documents for what you need.",
        splits=tuple(SPLITS),
        evaluation_split="test",
        meanings={"test": "whose first entity begins no training question"},
        dialect="search",
        reads_data=True,
        extra="search",
    )
    habits = SearchQaHabits
    compact = staticmethod(compact)

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, SearchQaOptions)
        self._source = QaSource(self.options, settings)

    @property
    def tools(self) -> Mapping[str, str]:
        return tools_of(self.options)

    @property
    def forms(self) -> str:
        """The actions, and what each does."""
        lines = ["Act with one call a step:"]
        for name, purpose in self.tools.items():
            lines.append(f"- {name}[...] {purpose}")
        lines.append("- answer[...] gives the answer and ends the episode")
        return "\n".join(lines)

    def sight(self, context: Context) -> str:
        """The documents that were shown, by id and title."""
        shown = titles_in(context.observations)
        return f"Shown so far: {', '.join(shown) or 'nothing'}."

    def tasks(self, split: str) -> list[Task]:
        """The questions of a split; kind is the number of hops."""
        return self._source.tasks(split, self.card.name)

    def exam(self, task: Task, action: str) -> Exam | None:
        """The answer of an action, beside the question and its known answers."""
        call = read_call(action)
        if call is None or call.name != ANSWER:
            return None
        question = self._source.question(task)
        return Exam(
            question=question.question,
            references=question.answers,
            answer=call.argument,
        )

    def routes(self) -> "Sequence[BaseRoute]":
        """The corpus as a retriever, for any client of the three protocols.

        The index is made here: a client would not wait for it.
        """
        # Another server is asked by its own address.
        if self.options.retriever is not None:
            return ()
        from agentcli.worlds.search_qa.retriever_server import retriever_routes

        retriever = self._source.retriever
        retriever.search([""], 1)
        return retriever_routes(retriever)

    def engine(self) -> SearchQaEngine:
        """A new engine; all engines of a process share one corpus and its index."""
        # An ImportError of what they need is due here, not in the middle of a rollout.
        import bm25s  # noqa: F401
        import Stemmer  # noqa: F401

        # Made in the first search, an index of minutes would miss every deadline.
        if self._source.asks and self.options.retriever is None:
            self._source.retriever.search([""], 1)
        return SearchQaEngine(self._source, self.options)

    def vocabulary(self) -> list[str]:
        """Actions, relations, and the words that names are made of.

        A whole name is no token: one that training never asks about could not be
        written.
        """
        words = {"search", "access", "read", ANSWER, COT}
        for relations in RELATIONS.values():
            words.update(relations)
        for entity in almanac(self.options.documents, self.options.seed):
            words.update(entity.name.split())
        return sorted(words)

    def next(self, context: Context, seed: int, habits: SearchQaHabits) -> Advice:
        """The next call: what leads to the next fact, or the answer."""
        lookup = lookup_of(context)
        if lookup.wanted is None:
            return _search_or_guess(context, lookup)
        browses = self.options.actions == "browse"
        return _Seeker(lookup, seed, habits, browses).advice(lookup.wanted)
