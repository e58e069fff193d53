"""One question at a time: searches and reading until an answer is given."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Literal, NamedTuple

from agentcli.environments.protocol import Observation, Start
from agentcli.records.calls import ANSWER, COT, read_call
from agentcli.records.types import Task
from agentcli.worlds.search_qa.expert import plan
from agentcli.worlds.search_qa.library import NAMED, Library, Shown, text_of
from agentcli.worlds.search_qa.options import SearchQaOptions
from agentcli.worlds.search_qa.questions.protocol import Question
from agentcli.worlds.search_qa.scoring import SCORES, exact_match
from agentcli.worlds.search_qa.source import QaSource

THOUGHT = "You think on."
"""The observation after `cot[...]`."""
NOTED = "Noted."
"""The observation after a `read` of results, or of a document's last part."""
TOOLS = {
    "search": "searches the documents, e.g. search[capital of France]",
    "access": "opens a document by the id or the title of a result, e.g. access[12]",
    "read": (
        "notes what the results or the open part say; an open document turns to its "
        "next part, e.g. read[nothing yet]"
    ),
}
"""Action -> what it does; an answer ends the episode."""
DIGEST_SIZE = 8
"""Bytes."""


class Inquiry(NamedTuple):
    """All that a state is, and how the action that led there was taken."""

    shown: frozenset[Shown] = frozenset()
    open: Shown | None = None
    """The part of a document that was read last."""
    text: str = "Nothing was searched yet."
    accepted: bool = True
    looked: bool = False
    reward: float = 0.0
    end: Literal["success", "failure"] | None = None


class SearchQaEngine:
    """An Engine that is Forkable and Solvable.

    `actions` stays empty: arguments are free texts, and a list would bind the agent to
    it (prompts/full.py).
    """

    def __init__(self, source: QaSource, options: SearchQaOptions) -> None:
        self._source = source
        self._tools = tools_of(options)
        self._score = SCORES[options.reward]
        self._library = Library(source.retriever, options)

    def start(self, task: Task) -> Start:
        """Opens a question. Raises DataError for a task of other settings."""
        self._task = task.id
        self._question: Question = self._source.question(task)
        self._inquiry = Inquiry()
        instruction = self._question.question
        return Start(instruction=instruction, observation=self._observe())

    def step(self, action: str) -> Observation:
        """Searches, opens, reads on, thinks on, or takes the answer.

        What is no such call, opens nothing that exists, or reads before anything was
        shown, is not accepted. Raises EngineError where the retriever fails.
        """
        call = read_call(action)
        if call is None:
            self._refuse("This is not a call; write NAME[argument].")
        elif call.name == ANSWER:
            self._end(call.argument)
        elif call.name == COT:
            self._inquiry = Inquiry(*self._inquiry[:2], text=THOUGHT, looked=True)
        elif call.name not in self._tools:
            names = ", ".join((*self._tools, ANSWER))
            self._refuse(f"There is no action {call.name[:40]!r}; there are {names}.")
        elif call.name == "search":
            self._search(call.argument)
        elif call.name == "access":
            self._access(call.argument)
        else:
            self._read()
        return self._observe()

    def snapshot(self) -> Inquiry:
        """What was shown, and what was observed last."""
        return self._inquiry

    def restore(self, snapshot: Inquiry) -> Observation:
        """Goes back to this state; the retriever is not asked again."""
        self._inquiry = snapshot
        return self._observe()

    def plan(self) -> list[str]:
        """Actions that show the evidence, and the answer (see expert.py)."""
        shown, opened = self._inquiry[:2]
        return plan(self._question, shown, opened, self._library)

    def _search(self, query: str) -> None:
        hits = self._library.hits(query)
        part = NAMED if self._library.browses else 0
        shown = [Shown(document, part) for document, _ in hits]
        # A page stays open while other results are looked at.
        self._show(shown, self._inquiry.open, self._library.results(hits))

    def _access(self, name: str) -> None:
        document = self._library.named(name, self._inquiry.shown)
        if document is None:
            self._refuse(f"There is no document {name[:80]!r}.")
            return
        part = Shown(document, 0)
        self._show([part], part, self._library.page(part))

    def _read(self) -> None:
        shown, opened = self._inquiry[:2]
        # An open page is read on, also where other results were looked at since.
        if opened and self._library.has_more(opened):
            part = Shown(opened.document, opened.part + 1)
            self._show([part], part, self._library.page(part))
        elif shown:
            self._inquiry = Inquiry(shown, opened, text=NOTED, looked=True)
        else:
            self._refuse("Nothing was shown yet; search first.")

    def _show(self, more: Iterable[Shown], opened: Shown | None, text: str) -> None:
        before = self._inquiry
        shown = before.shown.union(more)
        idle = (shown, opened) == before[:2]
        self._inquiry = Inquiry(shown, opened, text, looked=idle)

    def _end(self, answer: str) -> None:
        answers = self._question.answers
        self._inquiry = self._inquiry._replace(
            text=f"You answer {answer}.",
            accepted=True,
            looked=False,
            reward=self._score(answer, answers),
            end="success" if exact_match(answer, answers) else "failure",
        )

    def _refuse(self, text: str) -> None:
        self._inquiry = Inquiry(*self._inquiry[:2], text=text, accepted=False)

    def _observe(self) -> Observation:
        inquiry = self._inquiry
        # By name: ids alone may be equal, and the order of a set is nobody's.
        texts = {self._name(one): text_of(self._library, one) for one in inquiry.shown}
        names = sorted(texts)
        opened = inquiry.open
        place = self._name(opened) if opened else ""
        distinct_texts = dict.fromkeys(texts[name] for name in names)
        return Observation(
            text=inquiry.text,
            state="\n".join([self._task, inquiry.end or "", place, *names]),
            canonical="\n".join([self._question.question, *distinct_texts]),
            accepted=inquiry.accepted,
            looked=inquiry.looked,
            reward=inquiry.reward,
            end=inquiry.end,
        )

    def _name(self, one: Shown) -> str:
        """A part of a document with a digest of its text.

        The results of a served retriever may have one id: that of their page.
        """
        text = text_of(self._library, one).encode("utf-8", "surrogatepass")
        digest = blake2b(text, digest_size=DIGEST_SIZE).hexdigest()
        return f"{one.document.id}#{one.part}#{digest}"


def tools_of(options: SearchQaOptions) -> dict[str, str]:
    """The actions beside the answer, and what each does."""
    if options.actions == "browse":
        return TOOLS
    return {"search": TOOLS["search"]}
