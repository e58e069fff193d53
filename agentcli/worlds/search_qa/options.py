"""environment.options of search_qa: actions, questions, and where documents come from."""

from typing import Annotated, Literal

import msgspec

from agentcli.environments.protocol import PLACE
from agentcli.records.section import Count, CountFromZero, Positive, Seed

SETTING = f"{PLACE}.retriever"
FIRST_PAUSE = 0.25
"""Seconds before the second attempt; the pause doubles from one to the next."""


class HttpRetrieverOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Where a retriever is served, and how it is asked."""

    base_url: str
    """For instance http://localhost:8000."""
    protocol: Literal["search-r1", "single", "asearcher"] = "search-r1"
    """How it is asked: as Search-R1 does, so with one query a request, or as ASearcher
    does (with pages).
    """
    token_variable: str | None = None
    """The environment variable that holds a bearer token; the token itself is never a
    setting. None: the server wants none.
    """
    request_seconds: Positive = 10.0
    """Deadline of one attempt."""
    retries: CountFromZero = 3
    """Further attempts after a lost connection, a deadline or a 5xx, each after a longer
    pause.
    """

    def address(self) -> str:
        """The address without a slash at its end. Raises UsageError for another text."""
        from agentcli.records.http import checked_url

        return checked_url(
            self.base_url,
            f"{SETTING}.base_url",
            f"--set {SETTING}.base_url=http://HOST:PORT",
            f"the environment variable that {SETTING}.token_variable names",
        )

    @property
    def longest_seconds(self) -> float:
        """What a request can take with all its attempts and pauses."""
        pauses = FIRST_PAUSE * (2.0**self.retries - 1)
        return self.request_seconds * (self.retries + 1) + pauses


MOST_DOCUMENTS = 20_000
Hops = tuple[Literal[1, 2], ...]


class QuestionSizes(msgspec.Struct, kw_only=True, frozen=True):
    """Generated questions of each split."""

    train: Count = 2000
    valid: Count = 200
    test: Count = 500


class SearchQaOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Settings of the world. Without a data folder questions are generated."""

    actions: Literal["search", "browse"] = "search"
    """search: search and answer, whole documents as results (RewardFlow). browse:
    search, access, read and answer, results as titles with their beginnings (CARL).
    """
    reward: Literal["exact", "f1", "f1-asearcher"] = "exact"
    """Of an answer: exact match (for RewardFlow), the F1 of its words after SQuAD's
    normalisation, or the F1 that ASearcher takes, whose evaluation CARL follows.
    Success is an exact match in all three.
    """
    results: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    """Documents that a search shows."""
    snippet: Count = 80
    """Characters of a result's beginning under `browse`."""
    part: Count = 1000
    """Characters of a document that `access` shows at once; `read` goes on. A part ends
    with a sentence.
    """
    corpus: str | None = None
    """File of the corpus, a line {"id", "contents"} for each document, .jsonl or
    compressed. None: a generated corpus.
    """
    retriever: HttpRetrieverOptions | None = None
    """A served retriever, in the place of a corpus that is searched here."""
    documents: Annotated[int, msgspec.Meta(ge=20, le=MOST_DOCUMENTS)] = 2000
    """Documents of the generated corpus, one for each thing."""
    hops: Annotated[Hops, msgspec.Meta(min_length=1)] = (1, 2)
    """Documents that a generated question needs; each number is drawn equally often."""
    sizes: QuestionSizes = msgspec.field(default_factory=QuestionSizes)
    seed: Seed = 0
    """Seed of generated corpus and questions."""
