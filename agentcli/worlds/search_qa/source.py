"""Where questions and documents come from: both are generated, read, or served."""

from functools import cached_property, lru_cache
from pathlib import Path

from agentcli.environments.protocol import PLACE
from agentcli.errors import DataError, UsageError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.search_qa.almanac import corpus
from agentcli.worlds.search_qa.options import (
    HttpRetrieverOptions,
    SearchQaOptions,
    checked_address,
)
from agentcli.worlds.search_qa.question_files import read_questions
from agentcli.worlds.search_qa.questions import Question, generated_questions
from agentcli.worlds.search_qa.retrievers import (
    EmbeddedRetriever,
    Retriever,
    read_corpus,
)


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
        self._by_id: dict[str, dict[str, Question]] = {}

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

    def tasks(self, split: str, world: str) -> list[Task]:
        """The tasks of a split. Raises UsageError and DataError."""
        tasks = []
        for question in self._questions(split):
            task = Task(
                id=question.id,
                world=world,
                split=split,
                kind=question.kind,
                attributes=dict(question.attributes),
            )
            tasks.append(task)
        return tasks

    def question(self, task: Task) -> Question:
        """The question of a task. Raises DataError for a task of other settings."""
        split = task.split
        if split not in self._by_id:
            questions = self._questions(split)
            self._by_id[split] = {question.id: question for question in questions}
        question = self._by_id[split].get(task.id)
        if question is None:
            raise DataError(
                f"task {task.id}: it is none of these environment.options and --data; "
                "use those of its panel"
            )
        return question

    def _questions(self, split: str) -> tuple[Question, ...]:
        if self._data is not None:
            return read_questions(self._data, split, self._corpus)
        # Such a corpus can be served, but nothing generated is asked about it.
        if self._corpus is not None:
            return ()
        return generated_questions(self._options, split)


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
    checked_address(served.base_url)
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
