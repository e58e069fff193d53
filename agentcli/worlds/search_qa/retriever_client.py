"""A retriever behind HTTP, as the papers' authors serve one.

    search-r1   POST /retrieve {"queries": [..], "topk": k, "return_scores": true} gives
                {"result": [[{"document": {"id", "contents"}, "score"}, ..], ..]}, a list
                for each query (RewardFlow). It has no pages to access.
    single      The same, with {"query": ".."} for each query by itself.
    asearcher   The same with "return_scores": false, which gives the documents alone,
                each with its "url". POST /access {"urls": [..]} gives {"result":
                [{"contents"} or null, ..]} (CARL, whose setting is ASearcher's).

Nothing that the server sends is trusted (records/http.py), and what is not of the agreed
form is an error. Answers are not kept: where a fork replays an episode, the pool compares
each observation with the recorded one, so a retriever that changes its answers is an
errored leaf.
"""

import os
import time
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from agentcli.environments.protocol import PLACE
from agentcli.errors import EngineError, MissingError
from agentcli.records.faults import UNREADABLE, fault_in, shown
from agentcli.records.http import (
    Asking,
    BlockingHttpClient,
    LongAnswerError,
    NoAnswerError,
)
from agentcli.worlds.search_qa.options import FIRST_PAUSE, SETTING, HttpRetrieverOptions
from agentcli.worlds.search_qa.retrievers import Document, Hit, document_of

LARGEST_BODY = 16 * 2**20
"""Bytes of an answer."""
MAY_PASS = frozenset({408, 425, 429})
"""Refusals worth another attempt, beside 5xx."""

ResultT = TypeVar("ResultT")


class ServedDocument(msgspec.Struct, frozen=True):
    """A document as a server writes it."""

    contents: str
    id: str | int | None = None
    url: str | None = None


class ServedHit(msgspec.Struct, frozen=True):
    """A document with its score."""

    document: ServedDocument
    score: float


class ServedAnswer(msgspec.Struct, Generic[ResultT], frozen=True):
    """What the server answers: a result for each query or page."""

    result: list[ResultT]


class _AttemptFailed(Exception):
    """An attempt that failed in a way that may pass."""


class HttpRetriever:
    """A Retriever that asks a server."""

    _sleep = staticmethod(time.sleep)

    def __init__(self, options: HttpRetrieverOptions) -> None:
        self._url = options.address()
        self._options = options
        headers = {}
        if options.token_variable is not None:
            headers["Authorization"] = f"Bearer {_token(options.token_variable)}"
        asking = Asking(
            seconds=options.request_seconds,
            setting=f"{SETTING}.request_seconds",
            headers=headers,
        )
        self._client = BlockingHttpClient(asking)

    def close(self) -> None:
        self._client.close()

    def require_listener(self) -> None:
        """Raises MissingError where nobody listens, before anything is played."""
        try:
            self._client.ask("GET", self._url, most_bytes=0)
        except NoAnswerError as error:
            raise MissingError(
                f"{self._url}: no retriever answers there ({shown(str(error))}); start "
                f"it, or name another with --set {SETTING}.base_url=URL"
            ) from error

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The hits of each query. Raises EngineError where the server fails."""
        # One connection, one query at a time: such servers do not batch.
        if self._options.protocol == "single":
            return [self._hits({"query": query}, 1, k)[0] for query in queries]
        return self._hits({"queries": list(queries)}, len(queries), k)

    def access(self, id: str) -> Document | None:
        """The page of an id, under the protocol asearcher. Raises as `search`."""
        pages = ServedAnswer[ServedDocument | None]
        (page,) = self._ask("/access", {"urls": [id]}, pages, 1)
        return None if page is None else _document(page, id)

    def _hits(self, asked: dict[str, object], lists: int, most: int) -> list[list[Hit]]:
        scored = self._options.protocol != "asearcher"
        body = {**asked, "topk": most, "return_scores": scored}
        hits: list[list[Hit]] = []
        if scored:
            for row in self._ask(
                "/retrieve", body, ServedAnswer[list[ServedHit]], lists
            ):
                hits.append([Hit(_document(hit.document), hit.score) for hit in row])
        else:
            documents = ServedAnswer[list[ServedDocument]]
            for bare in self._ask("/retrieve", body, documents, lists):
                hits.append([Hit(_document(document), 0.0) for document in bare])
        # More than was asked for would change the observation with the server.
        longest = max(map(len, hits), default=0)
        if longest > most:
            raise self._nonsense(f"{longest} documents for a query, not {most}")
        return hits

    def _ask(
        self,
        route: str,
        body: dict[str, object],
        kind: type[ServedAnswer[ResultT]],
        count: int,
    ) -> list[ResultT]:
        data = self._post(route, msgspec.json.encode(body))
        try:
            results = msgspec.json.decode(data, type=kind).result
        except UNREADABLE as error:
            raise self._nonsense(fault_in(error, data)) from error
        if len(results) != count:
            raise self._nonsense(f"{len(results)} results for {count} questions")
        return results

    def _nonsense(self, fault: str) -> EngineError:
        return EngineError(
            f"{self._url}: not an answer of {SETTING}.protocol "
            f"{self._options.protocol}: {fault}"
        )

    def _post(self, route: str, body: bytes) -> bytes:
        """The body of a successful answer, after as many attempts as it takes."""
        pause = FIRST_PAUSE
        attempts = self._options.retries + 1
        # A search changes nothing on the server, so asking again is safe.
        for attempt in range(1, attempts + 1):
            try:
                return self._attempt(route, body)
            except _AttemptFailed as error:
                fault = error
            if attempt < attempts:
                self._sleep(pause)
                pause *= 2
        tried = f" ({attempts} attempts)" if attempts > 1 else ""
        raise EngineError(f"{self._url}{route}: {fault}{tried}")

    def _attempt(self, route: str, body: bytes) -> bytes:
        url = self._url + route
        try:
            answer = self._client.ask("POST", url, LARGEST_BODY, body)
        except LongAnswerError as error:
            # It would be as long again, so there is no other attempt.
            raise EngineError(
                f"{url}: {error}; ask for fewer documents with --set {PLACE}.results=N"
            ) from error
        except NoAnswerError as error:
            raise _AttemptFailed(shown(str(error))) from error
        status, _, data = answer
        if answer.is_success:
            return data
        text = data[:200].decode(errors="replace")
        refusal = f"answered {status}: {shown(text)}"
        if status >= 500 or status in MAY_PASS:
            raise _AttemptFailed(refusal)
        raise EngineError(f"{url}: {refusal}")


def _token(variable: str) -> str:
    """The token of a variable. Raises MissingError where it holds none."""
    token = os.environ.get(variable, "")
    if not (token and token.isascii() and token.isprintable()):
        raise MissingError(
            f"{SETTING}.token_variable: {variable} holds no token; export it first"
        )
    return token


def _document(served: ServedDocument, id: str | None = None) -> Document:
    """The document with the name by which it can be accessed."""
    document = document_of("", served.contents)
    # ASearcher accesses pages by their URL; Search-R1's documents have ids only.
    names = (id, served.url, served.id, document.title)
    name = next(name for name in names if name is not None)
    return msgspec.structs.replace(document, id=str(name))
