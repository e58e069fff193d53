"""One question at a time: searches and reading until an answer is given.

The corpus is used as an agent does: searched, opened, and read part by part. Also the
score of an answer, and the expert, which knows the evidence.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, NamedTuple

from agentcli.environments.protocol import Observation, Start
from agentcli.records.calls import ANSWER, ToolCall
from agentcli.records.types import Task
from agentcli.worlds.generated import CallEngine
from agentcli.worlds.search_qa.options import SearchQaOptions
from agentcli.worlds.search_qa.questions import Question
from agentcli.worlds.search_qa.retrievers import Document, Hit, Retriever
from agentcli.worlds.search_qa.source import QaSource

NOTHING = "Nothing is found."
MORE, LAST = "(more)", "(end)"
"""Close a part of a document: whether another one follows."""
NAMED = -1
"""Part of a document of which a search showed title and beginning."""
LONGEST_QUERY = 500
"""Characters."""
_HEAD = re.compile(
    r'^\[([^\]\n]*)\] (?:"(.+?)"|(.+?))(?:, part \d+ of \d+)?: ', re.MULTILINE
)
_QUOTED = re.compile('^"|: ')
"""What makes a title stand in quotes, so that its end can be told."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


class Shown(NamedTuple):
    """Something that the agent has seen."""

    document: Document
    part: int
    """From 0, or NAMED."""


class Library:
    """A retriever under the options of the world."""

    def __init__(self, retriever: Retriever, options: SearchQaOptions) -> None:
        self.browses = options.actions == "browse"
        self._retriever = retriever
        self._options = options

    def hits(self, query: str) -> list[Hit]:
        """The documents of a search. Raises EngineError where the retriever fails."""
        # A model that repeats itself must not cost the retriever without end.
        query = query[:LONGEST_QUERY]
        (hits,) = self._retriever.search([query], self._options.results)
        return hits

    def results(self, hits: Sequence[Hit]) -> str:
        """What a search shows: whole documents, or their beginnings."""
        lines = []
        for document, _ in hits:
            lines.append(f"{_head(document)}: {self.beginning(document)}")
        return "\n".join(lines) or NOTHING

    def beginning(self, document: Document) -> str:
        """What a search shows of a document's text."""
        text = document.text
        if self.browses and len(text) > self._options.snippet:
            return f"{text[: self._options.snippet]} ..."
        return text

    def parts(self, document: Document) -> tuple[str, ...]:
        """The parts in which a document is read; one where results are whole."""
        if not self.browses:
            return (document.text,)
        return _parts_of(document.text, self._options.part)

    def page(self, shown: Shown) -> str:
        """A part of a document as `access` and `read` show it."""
        document, number = shown
        parts = self.parts(document)
        end = MORE if self.has_more(shown) else LAST
        place = f"part {number + 1} of {len(parts)}"
        return f"{_head(document)}, {place}: {parts[number]} {end}"

    def has_more(self, shown: Shown) -> bool:
        return shown.part + 1 < len(self.parts(shown.document))

    def named(self, name: str, shown: Iterable[Shown]) -> Document | None:
        """The document of an id, or with the title of one that was shown.

        Raises EngineError where the retriever fails.
        """
        wanted = name.lower()
        titled = []
        for one in shown:
            plain = one.document.title.strip().lower()
            if wanted in (plain, f'"{plain}"'):
                titled.append(one.document)
        if titled:
            # Two documents of one title: any, but always the same.
            best = min(titled, key=lambda document: document.id)
            # Of a served page a search shows a passage alone.
            return self._retriever.access(best.id) or best
        return self._retriever.access(name)


def text_of(library: Library, shown: Shown) -> str:
    """The text that was shown; of a result under `browse`, title and beginning."""
    if shown.part == NAMED:
        return f"{shown.document.title}: {library.beginning(shown.document)}"
    return library.parts(shown.document)[shown.part]


def titles_in(texts: Iterable[str]) -> list[str]:
    """The documents that results and pages name, as "[id] title", each once."""
    heads = (head for text in texts for head in heads_in(text))
    return list(dict.fromkeys(f"[{id}] {title}" for id, title in heads))


def heads_in(text: str) -> list[tuple[str, str]]:
    """Id and title of each document that results or a page name."""
    if not text.startswith("["):
        return []
    return [(id, quoted or plain) for id, quoted, plain in _HEAD.findall(text)]


def _head(document: Document) -> str:
    title = document.title
    if _QUOTED.search(title):
        title = f'"{title}"'
    return f"[{document.id}] {title}"


@lru_cache(maxsize=4096)
def _parts_of(text: str, length: int) -> tuple[str, ...]:
    """Whole sentences, in all not longer than `length`.

    A longer sentence is a part of its own.
    """
    parts = [""]
    for sentence in _SENTENCE_END.split(text.strip()):
        longer = f"{parts[-1]} {sentence}".strip()
        if parts[-1] and len(longer) > length:
            parts.append(sentence)
        else:
            parts[-1] = longer
    return tuple(parts)


_PUNCTUATION = str.maketrans("", "", string.punctuation)
_BLANKS = str.maketrans(dict.fromkeys(string.punctuation, " "))
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalised(text: str) -> str:
    """The text in lower case, without punctuation, articles and further blanks."""
    words = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", words).split())


def exact_match(answer: str, references: Sequence[str]) -> float:
    """1 if the answer is one of the known ones once both are normalised, else 0."""
    wanted = {normalised(reference) for reference in references}
    return float(normalised(answer) in wanted)


def f1(answer: str, references: Sequence[str]) -> float:
    """The harmonic mean of precision and recall over words, of the best known answer.

    Where either text has no words left, it is 1 if both have none, else 0.
    """
    return max((_f1(answer, reference) for reference in references), default=0.0)


def _f1(answer: str, reference: str) -> float:
    given = normalised(answer).split()
    wanted = normalised(reference).split()
    # As SQuAD's script: two empty texts agree, and one alone never does.
    if not given or not wanted:
        return float(given == wanted)
    shared = Counter(given) & Counter(wanted)
    return 2 * shared.total() / (len(given) + len(wanted))


def f1_asearcher(answer: str, references: Sequence[str]) -> float:
    """ASearcher's F1 of its evaluation: over the sets of words, of the best known answer.

    Articles stay, and punctuation becomes a blank. A text without words has 0.
    """
    scores = (_f1_of_sets(answer, reference) for reference in references)
    return max(scores, default=0.0)


def _f1_of_sets(answer: str, reference: str) -> float:
    given = {*answer.translate(_BLANKS).lower().split()}
    wanted = {*reference.translate(_BLANKS).lower().split()}
    if not given or not wanted:
        return 0.0
    return 2 * len(given & wanted) / (len(given) + len(wanted))


SCORES: dict[str, Callable[[str, Sequence[str]], float]] = {
    "exact": exact_match,
    "f1": f1,
    "f1-asearcher": f1_asearcher,
}
"""Rewards of an answer by name: RewardFlow's, SQuAD's F1, and that of CARL's evaluation."""


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
    """A state, and how the engine took the action that led there."""

    shown: frozenset[Shown] = frozenset()
    open: Shown | None = None
    """The part of a document that was read last."""
    text: str = "Nothing was searched yet."
    accepted: bool = True
    looked: bool = False
    reward: float = 0.0
    end: Literal["success", "failure"] | None = None


class SearchQaEngine(CallEngine[Inquiry]):
    """One question at a time; it is Solvable.

    Not accepted is, besides, what opens nothing that exists, and a `read` before
    anything was shown. A step raises EngineError where the retriever fails.
    """

    def __init__(self, source: QaSource, options: SearchQaOptions) -> None:
        self._source = source
        self._called = tools_of(options)
        names = ", ".join((*self._called, ANSWER))
        self._unknown = f"There is no action {{name}}; there are {names}."
        self._score = SCORES[options.reward]
        self._library = Library(source.retriever, options)

    def start(self, task: Task) -> Start:
        """Opens a question. Raises DataError for a task of other settings."""
        self._task = task.id
        self._question: Question = self._source.question(task)
        self._now = Inquiry()
        instruction = self._question.question
        return Start(instruction=instruction, observation=self._observe())

    def plan(self) -> list[str]:
        """Actions that show the evidence, as far as it is known, and the answer.

        Every document is searched for first: one that no search shows ends the
        evidence.
        """
        question = self._question
        calls: list[ToolCall] = []
        # Each document must show the title of the next one, and the last the answer.
        goals = [*question.evidence[1:], question.answers[0]]
        for title, goal in zip(question.evidence, goals, strict=False):
            steps = self._steps(title, goal)
            if steps is None:
                break
            calls += steps
        calls.append(ToolCall(ANSWER, question.answers[0]))
        return [str(call) for call in calls]

    def _steps(self, title: str, goal: str) -> list[ToolCall] | None:
        """Calls after which a document of this title has shown `goal`, if there is one."""
        library = self._library
        pages = [one for one in self._now.shown if one.document.title == title]
        # It was shown already, so a plan from the middle of an episode is shorter.
        if any(goal in text_of(library, one) for one in pages):
            return []
        calls = []
        documents = [one.document for one in pages]
        if not documents:
            calls.append(ToolCall("search", title))
            documents = [hit.document for hit in library.hits(title)]
        for document in documents:
            if document.title == title and goal in document.text:
                if library.browses:
                    calls += self._reading(document, goal)
                return calls
        return None

    def _reading(self, document: Document, goal: str) -> list[ToolCall]:
        """Opens the document unless it is open, and reads on to the part with `goal`."""
        parts = self._library.parts(document)
        place = next(place for place, part in enumerate(parts) if goal in part)
        read = ToolCall("read", "nothing yet")
        opened = self._now.open
        # `read` only turns forwards; a part before the open one needs `access` again.
        if opened and opened.document == document and opened.part < place:
            return [read] * (place - opened.part)
        return [ToolCall("access", document.id), *[read] * place]

    def _call(self, call: ToolCall) -> None:
        if call.name == "search":
            self._search(call.argument)
        elif call.name == "access":
            self._access(call.argument)
        else:
            self._read()

    def _search(self, query: str) -> None:
        hits = self._library.hits(query)
        part = NAMED if self._library.browses else 0
        shown = [Shown(document, part) for document, _ in hits]
        # A page stays open while other results are looked at.
        self._show(shown, self._now.open, self._library.results(hits))

    def _access(self, name: str) -> None:
        document = self._library.named(name, self._now.shown)
        if document is None:
            self._tell(f"There is no document {name[:80]!r}.", accepted=False)
            return
        part = Shown(document, 0)
        self._show([part], part, self._library.page(part))

    def _read(self) -> None:
        shown, opened = self._now[:2]
        # An open page is read on, also where other results were looked at since.
        if opened and self._library.has_more(opened):
            part = Shown(opened.document, opened.part + 1)
            self._show([part], part, self._library.page(part))
        elif shown:
            self._tell(NOTED, looked=True)
        else:
            self._tell("Nothing was shown yet; search first.", accepted=False)

    def _show(self, more: Iterable[Shown], opened: Shown | None, text: str) -> None:
        before = self._now
        shown = before.shown.union(more)
        idle = (shown, opened) == before[:2]
        self._now = Inquiry(shown, opened, text, looked=idle)

    def _end(self, answer: str) -> None:
        answers = self._question.answers
        self._now = self._now._replace(
            text=f"You answer {answer}.",
            accepted=True,
            looked=False,
            reward=self._score(answer, answers),
            end="success" if exact_match(answer, answers) else "failure",
        )

    def _tell(self, text: str, *, accepted: bool = True, looked: bool = False) -> None:
        self._now = Inquiry(*self._now[:2], text=text, accepted=accepted, looked=looked)

    def _observe(self) -> Observation:
        inquiry = self._now
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
