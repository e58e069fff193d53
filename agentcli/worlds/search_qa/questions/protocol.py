"""A question with its known answers, wherever it comes from."""

from collections.abc import Mapping

import msgspec


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question."""

    id: str
    """Unique in its split."""
    question: str
    answers: tuple[str, ...]
    """Each of them is right."""
    split: str
    kind: str
    attributes: Mapping[str, str] = {}
    """What `--where` can ask for."""
    evidence: tuple[str, ...] = ()
    """Titles of the documents that lead to the answer, in order; empty: not known."""
