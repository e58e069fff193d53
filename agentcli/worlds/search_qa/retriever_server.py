"""The three retriever protocols as routes of a server, over any retriever.

    POST /retrieve  {"queries": [..]} or {"query": ".."}, with "topk" and
                    "return_scores"; answered as retriever_client.py says.
    POST /access    {"urls": [..]}: the documents of these ids, null for an unknown one.

So other frameworks train on the corpus of this world, and this client is tested on the
real thing. A request that is not of this form is answered by 400 and one line.
"""

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentcli.errors import DataError
from agentcli.records.faults import UNREADABLE, fault_in
from agentcli.worlds.search_qa.retrievers import Document, Hit, Retriever

LARGEST_REQUEST = 2**20
"""Bytes."""
MOST_QUERIES = 1024

Query = Annotated[str, msgspec.Meta(max_length=10_000)]
Queries = Annotated[list[Query], msgspec.Meta(min_length=1, max_length=MOST_QUERIES)]
RequestT = TypeVar("RequestT")


class RetrieveRequest(msgspec.Struct, kw_only=True):
    """What /retrieve is asked."""

    queries: Queries | None = None
    query: Query | None = None
    topk: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    return_scores: bool = False


class AccessRequest(msgspec.Struct):
    """What /access is asked."""

    urls: Queries


def retriever_routes(retriever: Retriever) -> list[Route]:
    """The routes over a retriever."""

    def retrieve(request: RetrieveRequest) -> list[object]:
        queries = request.queries
        if queries is None:
            if request.query is None:
                raise DataError("neither queries nor query - at `$`")
            queries = [request.query]
        hits_of_query = retriever.search(queries, request.topk)
        scored = request.return_scores
        return [[_shown(hit, scored) for hit in hits] for hits in hits_of_query]

    def access(request: AccessRequest) -> list[object]:
        pages = [retriever.access(url) for url in request.urls]
        return [page and _written(page) for page in pages]

    return [
        Route("/retrieve", _answering(RetrieveRequest, retrieve), methods=["POST"]),
        Route("/access", _answering(AccessRequest, access), methods=["POST"]),
    ]


def _answering(
    kind: type[RequestT], answer: Callable[[RequestT], list[object]]
) -> Callable[[Request], object]:
    """An endpoint that decodes a request, and encodes the answer's `result`."""

    async def endpoint(request: Request) -> Response:
        data = await _body(request)
        if data is None:
            return _json({"error": f"more than {LARGEST_REQUEST} bytes"}, 413)
        try:
            asked = msgspec.json.decode(data, type=kind)
            # A search in millions of documents takes long enough for others to wait.
            result = await run_in_threadpool(answer, asked)
        except UNREADABLE as error:
            return _json({"error": fault_in(error, data)}, 400)
        except DataError as error:
            return _json({"error": str(error)}, 400)
        return _json({"result": result}, 200)

    return endpoint


async def _body(request: Request) -> bytes | None:
    """The body; None where it is too large."""
    data = b""
    # request.body() would first take in whatever is sent.
    async for part in request.stream():
        data += part
        if len(data) > LARGEST_REQUEST:
            return None
    return data


def _json(value: object, status: int) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _shown(hit: Hit, scored: bool) -> object:
    document = _written(hit.document)
    return {"document": document, "score": hit.score} if scored else document


def _written(document: Document) -> dict[str, str]:
    return {"id": document.id, "url": document.id, "contents": document.contents}
