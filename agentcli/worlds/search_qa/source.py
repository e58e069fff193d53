"""Where questions and documents come from: both are generated, read, or served.

Questions of published data sets are read unchanged. Their layouts are those of Natural
Questions (open), HotpotQA, 2WikiMultihopQA, MuSiQue, Bamboogle, TriviaQA and PopQA, and
the one layout that FlashRAG, Search-R1 and ASearcher bring all of them into
(`golden_answers`). A name with train, dev or test in it says which split a file is of;
any other file is a test set. Beside 2WikiMultihopQA's files id_aliases.json names
further answers. Rows that MuSiQue marks as not answerable are left out.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache, cached_property, lru_cache
from pathlib import Path

import msgspec

from agentcli.environments.protocol import PLACE
from agentcli.errors import DataError, UsageError
from agentcli.records.faults import UNREADABLE, shown
from agentcli.records.files import read_numbered
from agentcli.records.regular import is_there
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.generated import foreign_task
from agentcli.worlds.row_files import SUFFIXES, row_files, rows_of
from agentcli.worlds.search_qa.options import HttpRetrieverOptions, SearchQaOptions
from agentcli.worlds.search_qa.questions import Question, corpus, generated_questions
from agentcli.worlds.search_qa.retrievers import (
    EmbeddedRetriever,
    Retriever,
    read_corpus,
)

SPLIT_WORDS = {
    "train": "train",
    "dev": "valid",
    "valid": "valid",
    "validation": "valid",
    "test": "test",
}
"""A word in the name of a file -> the split that its questions belong to."""
ALIASES = "id_aliases.json"
"""Other names of 2WikiMultihopQA's answers, one Wikidata id a line."""
_WORD = re.compile(r"[a-z]+")
_HOPS = re.compile(r"(\d)hop")

Texts = tuple[str, ...]


class TriviaAnswer(msgspec.Struct, frozen=True):
    """An answer of TriviaQA."""

    value: str
    aliases: Texts = ()


class Traits(msgspec.Struct, frozen=True):
    """What a data set says about a question."""

    type: str | None = None
    level: str | None = None


class AliasRow(msgspec.Struct, frozen=True):
    """The names of one Wikidata id."""

    Q_id: str
    aliases: Texts = ()
    demonyms: Texts = ()


class QuestionRow(msgspec.Struct, kw_only=True, frozen=True):
    """One row of any of the layouts."""

    question: str | None = None
    bamboogle_question: str | None = msgspec.field(name="Question", default=None)
    id: str | int | None = None
    hotpot_id: str | None = msgspec.field(name="_id", default=None)
    question_id: str | int | None = None
    qid: str | int | None = None
    answer: str | Texts | TriviaAnswer | None = None
    bamboogle_answer: str | None = msgspec.field(name="Answer", default=None)
    golden_answers: Texts | None = None
    possible_answers: str | Texts | None = None
    """PopQA's: a list, or a list that is written as JSON."""
    answer_aliases: Texts | None = None
    answer_id: str | None = None
    """2WikiMultihopQA's: the Wikidata id of the answer."""
    answerable: bool = True
    data_source: str | None = None
    """The data set of this row, in files that hold several; their ids may be equal."""
    type: str | None = None
    level: str | None = None
    metadata: Traits | None = None


@lru_cache(maxsize=4)
def read_questions(
    data: Path, split: str, corpus: Path | None = None
) -> tuple[Question, ...]:
    """The questions of a split, in the order of their files.

    It is empty where no file is of this split. The corpus, which may lie beside them,
    is not one of these files. Raises DataError.
    """
    questions: dict[str, Question] = {}
    rows: Counter[str] = Counter()
    for path in row_files(data):
        if path.name == ALIASES or path.resolve() == corpus:
            continue
        if split_of(path) != split:
            continue
        for place, question in _questions(path, split, rows):
            if question.id in questions:
                raise DataError(
                    f"{place}: the question {shown(question.id)} is there twice; keep "
                    "one of them"
                )
            questions[question.id] = question
    return tuple(questions.values())


def split_of(path: Path) -> str:
    """The split that a file's name says; the last such word counts."""
    for word in reversed(_WORD.findall(path.name.lower())):
        if word in SPLIT_WORDS:
            return SPLIT_WORDS[word]
    return "test"


def _questions(
    path: Path, split: str, rows: Counter[str]
) -> Iterator[tuple[str, Question]]:
    """The questions of a file; `rows` counts those of each source, over all files."""
    file_source = source_of(path)
    aliases = _aliases(path.with_name(ALIASES))
    for place, row in rows_of(path, QuestionRow):
        source = row.data_source or file_source
        number = rows[source]
        rows[source] += 1
        if not row.answerable:
            continue
        # Data sets name the field differently; some rows have several of them.
        names = (row.id, row.hotpot_id, row.question_id, row.qid)
        given = [name for name in names if name is not None]
        name = given[0] if given else f"{split}-{number}"
        attributes = _attributes(row, source, str(name))
        question = Question(
            id=f"{source}/{name}",
            question=_asked(row, place),
            answers=_answers(row, aliases.get(row.answer_id or "", ()), place),
            split=split,
            kind=attributes.get("type", source),
            attributes=attributes,
        )
        yield place, question


def source_of(path: Path) -> str:
    """The data set of a file: its name without suffix, or that of its folder.

    A file that is called by its split alone lies in a folder called by the data set.
    """
    stem = path.name
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    bare = set(_WORD.findall(stem.lower())) <= {*SPLIT_WORDS, "of"}
    return path.resolve().parent.name if bare else stem


def _attributes(row: QuestionRow, source: str, name: str) -> dict[str, str]:
    """What --where can ask for: source, type, level and hops, where they are known."""
    traits = row.metadata or Traits()
    hops = _HOPS.match(name)
    values = {
        "source": source,
        "type": row.type or traits.type,
        "level": row.level or traits.level,
        "hops": hops[1] if hops else None,
    }
    return {key: value for key, value in values.items() if value}


def _asked(row: QuestionRow, place: str) -> str:
    question = row.question or row.bamboogle_question or ""
    if not question.strip():
        raise DataError(f"{place}: there is no question - at `$.question`")
    return question.strip()


@lru_cache(maxsize=1)
def _aliases(path: Path) -> dict[str, Texts]:
    """The other names of answers by their ids; none where there is no such file."""
    if not is_there(path):
        return {}
    rows = read_numbered(path, AliasRow, whole=True)
    return {row.Q_id: (*row.aliases, *row.demonyms) for _, row in rows}


def _answers(row: QuestionRow, aliases: Texts, place: str) -> Texts:
    """All known answers, the data set's own first. Raises DataError where none is."""
    # The order matters to an expert: it answers with the first.
    answers: list[str] = []
    for field in (
        row.golden_answers,
        row.answer,
        row.bamboogle_answer,
        _listed(row.possible_answers, place),
        row.answer_aliases,
        aliases,
    ):
        answers += _texts(field)
    known = tuple(dict.fromkeys(text.strip() for text in answers if text.strip()))
    if not known:
        raise DataError(
            f"{place}: no answer is known - at `$.answer`; a test set whose answers "
            "are kept back cannot be used, take its dev set"
        )
    return known


def _texts(field: str | Texts | TriviaAnswer | None) -> Texts:
    if field is None:
        return ()
    if isinstance(field, str):
        return (field,)
    if isinstance(field, TriviaAnswer):
        return (field.value, *field.aliases)
    return field


def _listed(field: str | Texts | None, place: str) -> Texts | None:
    """A list of answers, decoded where it is written as JSON."""
    if not isinstance(field, str):
        return field
    try:
        return msgspec.json.decode(field, type=Texts)
    except UNREADABLE as error:
        raise DataError(
            f"{place}: {shown(str(error))} - at `$.possible_answers`"
        ) from error


class QaSource:
    """The questions as tasks, and the retriever that all engines of a process share.

    Raises UsageError for options that do not go together.
    """

    def __init__(self, options: SearchQaOptions, settings: EnvironmentSettings) -> None:
        _check(options, settings)
        self._options = options
        self._data = Path(settings.data).expanduser() if settings.data else None
        self._corpus = None
        if options.corpus is not None:
            self._corpus = Path(options.corpus).expanduser().resolve()
        self._by_id = cache(
            lambda split: {question.id: question for question in self._questions(split)}
        )

    @cached_property
    def retriever(self) -> Retriever:
        """The retriever over the corpus, or the served one.

        Raises DataError for a file that is no corpus, MissingError where none is served.
        """
        options = self._options
        if options.retriever is not None:
            from agentcli.worlds.search_qa.retriever_client import HttpRetriever

            asked = HttpRetriever(options.retriever)
            asked.require_listener()
            return asked
        if self._corpus is not None:
            return _over_file(self._corpus)
        return _over_generated(options.documents, options.seed)

    @property
    def asks(self) -> bool:
        """Whether there are questions: a corpus of a file alone can only be served."""
        return self._data is not None or self._corpus is None

    def tasks(self, split: str, world: str) -> list[Task]:
        """The tasks of a split. Raises UsageError and DataError."""
        return [
            Task(
                id=question.id,
                world=world,
                split=split,
                kind=question.kind,
                attributes=dict(question.attributes),
            )
            for question in self._questions(split)
        ]

    def question(self, task: Task) -> Question:
        """The question of a task. Raises DataError for a task of other settings."""
        question = self._by_id(task.split).get(task.id)
        if question is None:
            raise foreign_task(task)
        return question

    def _questions(self, split: str) -> tuple[Question, ...]:
        if self._data is not None:
            return read_questions(self._data, split, self._corpus)
        return generated_questions(self._options, split) if self.asks else ()


def _check(options: SearchQaOptions, settings: EnvironmentSettings) -> None:
    """Raises UsageError for questions and documents that have nothing in common."""
    served = options.retriever
    if served is not None and options.corpus is not None:
        raise UsageError(
            f"{PLACE}.corpus: a served retriever has a corpus of its own; leave out "
            f"this one, or {PLACE}.retriever"
        )
    if settings.data and served is None and options.corpus is None:
        raise UsageError(
            f"--data {settings.data}: its questions are not about a generated corpus; "
            f"name theirs with --set {PLACE}.corpus=FILE, or a retriever with --set "
            f"{PLACE}.retriever.base_url=URL"
        )
    if served is not None:
        _check_served(options, served, settings.deadline_seconds)


def _check_served(
    options: SearchQaOptions, served: HttpRetrieverOptions, deadline_seconds: float
) -> None:
    """Raises UsageError for a retriever that cannot serve these options."""
    served.address()
    if options.actions == "browse" and served.protocol != "asearcher":
        raise UsageError(
            f"{PLACE}.retriever.protocol: {served.protocol} has no pages to access; "
            f"set it to asearcher, or {PLACE}.actions to search"
        )
    if served.longest_seconds >= deadline_seconds:
        raise UsageError(
            f"{PLACE}.retriever.request_seconds: with all its retries a search may take "
            f"{served.longest_seconds:g} s, and an engine has {deadline_seconds:g} s; "
            "lower it or retries, or raise environment.deadline_seconds"
        )


@lru_cache(maxsize=2)
def _over_generated(documents: int, seed: int) -> EmbeddedRetriever:
    return EmbeddedRetriever(corpus(documents, seed))


@lru_cache(maxsize=1)
def _over_file(path: Path) -> EmbeddedRetriever:
    return EmbeddedRetriever(read_corpus(path))
