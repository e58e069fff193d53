"""Where questions and documents come from: here both are generated."""

from functools import cached_property, lru_cache

from agentcli.environments.search_qa.documents import corpus
from agentcli.environments.search_qa.options import SearchQaOptions
from agentcli.environments.search_qa.questions.generated import generated_questions
from agentcli.environments.search_qa.questions.protocol import Question
from agentcli.environments.search_qa.retrievers.embedded import EmbeddedRetriever
from agentcli.environments.search_qa.retrievers.protocol import Retriever
from agentcli.errors import DataError
from agentcli.records.types import Task


class QaSource:
    """The questions as tasks, and the retriever that all engines of a process share."""

    def __init__(self, options: SearchQaOptions) -> None:
        self._options = options

    @cached_property
    def retriever(self) -> Retriever:
        """The retriever over the corpus."""
        return _embedded(self._options.documents, self._options.seed)

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
        _, _, index = task.id.rpartition("/")
        questions = self._questions(task.split)
        if index.isascii() and index.isdigit() and int(index) < len(questions):
            question = questions[int(index)]
            if question.id == task.id:
                return question
        raise DataError(
            f"task {task.id}: it is none of these environment.options and --data; use "
            "those of its panel"
        )

    def _questions(self, split: str) -> tuple[Question, ...]:
        return generated_questions(self._options, split)


@lru_cache(maxsize=2)
def _embedded(documents: int, seed: int) -> EmbeddedRetriever:
    return EmbeddedRetriever(corpus(documents, seed))
