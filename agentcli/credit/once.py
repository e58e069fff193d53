"""Answers that the accounts of one tree share.

A page accounts for every row of a tree, and most of what a row's evidence rests on is
the same for all of them. Within `shared_answers` a function marked `once` is computed
once for the same objects. Outside nothing is kept: a tree may change between two calls.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
AnswerT = TypeVar("AnswerT")
Answers = dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]]
"""Arguments and answer, by the function and the identities of the arguments."""

_answers: ContextVar[Answers | None] = ContextVar("answers", default=None)


@contextmanager
def shared_answers() -> Iterator[None]:
    """Keeps the answers of functions marked `once` until the block ends."""
    token = _answers.set({})
    try:
        yield
    finally:
        _answers.reset(token)


def once(function: Callable[Arguments, AnswerT]) -> Callable[Arguments, AnswerT]:
    """Marks a function of objects that do not change while its answers are shared."""

    @wraps(function)
    def answer(*objects: Arguments.args, **named: Arguments.kwargs) -> AnswerT:
        answers = _answers.get()
        if answers is None or named:
            return function(*objects, **named)
        key = (function, *map(id, objects))
        if key not in answers:
            # The objects are held too: nothing else can then have their identity.
            answers[key] = (objects, function(*objects, **named))
        shared: AnswerT = answers[key][1]
        return shared

    return answer
