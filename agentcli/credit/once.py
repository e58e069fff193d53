"""A cache for results that are needed again while the rows of a tree are explained.

A page explains every row of a tree, and most intermediate results are the same for all
rows. Inside `shared_answers`, a function marked `once` is computed once for the same
objects (calls with keyword arguments are not cached). Outside, nothing is cached: a
tree may change between two calls.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
AnswerT = TypeVar("AnswerT")
Answers = dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]]
"""Arguments and answer, keyed by the function and the ids of its arguments."""

_answers: ContextVar[Answers | None] = ContextVar("answers", default=None)


@contextmanager
def shared_answers() -> Iterator[None]:
    """Caches the answers of functions marked `once` until the block ends."""
    token = _answers.set({})
    try:
        yield
    finally:
        _answers.reset(token)


def once(function: Callable[Arguments, AnswerT]) -> Callable[Arguments, AnswerT]:
    """Marks a function whose arguments do not change while answers are cached."""

    @wraps(function)
    def answer(*objects: Arguments.args, **named: Arguments.kwargs) -> AnswerT:
        answers = _answers.get()
        if answers is None or named:
            return function(*objects, **named)
        key = (function, *map(id, objects))
        if key not in answers:
            # Also keeps the objects alive, so that no other object can get their ids.
            answers[key] = (objects, function(*objects, **named))
        shared: AnswerT = answers[key][1]
        return shared

    return answer
