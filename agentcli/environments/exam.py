"""A question with an answer and its references, so that a model can judge it."""

from typing import Protocol, runtime_checkable

import msgspec

from agentcli.records.types import Task


class Exam(msgspec.Struct, kw_only=True, frozen=True):
    """An answer, together with its question."""

    question: str
    references: tuple[str, ...]
    """The known answers; each of them is right."""
    answer: str


@runtime_checkable
class Examining(Protocol):
    """A world whose tasks are questions with known answers."""

    def exam(self, task: Task, action: str) -> Exam | None:
        """What an action answers to the question of a task.

        None where it is no answer. Raises DataError for a task of other settings.
        """
        ...
