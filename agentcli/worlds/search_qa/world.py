"""Questions whose answers stand in a corpus that can be searched (RewardFlow, CARL).

Corpus and questions are generated, about invented things, with one hop or two. So no
model can know an answer without searching. Real questions, a corpus file or a served
retriever are used where the settings name them (source.py).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agentcli.environments.protocol import (
    Advice,
    Card,
    Context,
    Exam,
    options_of,
)
from agentcli.records.calls import ANSWER, read_call
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.generated import SPLITS
from agentcli.worlds.search_qa import tutor
from agentcli.worlds.search_qa.engine import SearchQaEngine, tools_of
from agentcli.worlds.search_qa.library import titles_in
from agentcli.worlds.search_qa.options import SearchQaOptions
from agentcli.worlds.search_qa.source import QaSource

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


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
    habits = tutor.SearchQaHabits
    compact = staticmethod(tutor.compact)

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

        return SearchQaEngine(self._source, self.options)

    def vocabulary(self) -> list[str]:
        return tutor.vocabulary(self.options)

    def next(
        self,
        context: Context,
        seed: int,
        habits: tutor.SearchQaHabits,
    ) -> Advice:
        """The searching expert's call (see tutor.py)."""
        browses = self.options.actions == "browse"
        return tutor.advise(context, seed, habits, browses)
