"""The HTTP retriever: three protocols on the real server, and a server that misbehaves in every way."""

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from agentcli.errors import EngineError, MissingError
from agentcli.records.settings import EnvironmentSettings
from agentcli.worlds.search_qa import retriever_client
from agentcli.worlds.search_qa.options import HttpRetrieverOptions
from agentcli.worlds.search_qa.retriever_client import HttpRetriever
from agentcli.worlds.search_qa.retriever_server import LARGEST_REQUEST, retriever_routes
from agentcli.worlds.search_qa.retrievers import Hit
from agentcli.worlds.search_qa.world import SearchQaWorld
from chat_server import Answer, ChatServer, Script
from refusal import refused
from served_app import served
from small_retriever import DOCUMENTS, SmallRetriever

ROUTES = ("/retrieve", "/access")
ROW = {"document": {"id": "8", "contents": '"John Dunn"\nHe read history.'}, "score": 2.5}
GOOD = Answer({"result": [[ROW]]})
NESTED = b"[" * 100_000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(retriever_routes(SmallRetriever())) as url:
        yield url


class Asked(HttpRetriever):
    """An HttpRetriever whose pauses are noted, not waited for."""

    def __init__(self, url: str, **options: Any) -> None:
        self.pauses: list[float] = []
        self._sleep = self.pauses.append
        super().__init__(HttpRetrieverOptions(base_url=url, **options))


@pytest.mark.parametrize("protocol", ["search-r1", "single", "asearcher"])
def test_a_served_corpus_answers_as_the_corpus(address: str, protocol: str) -> None:
    asked = Asked(address, protocol=protocol)
    queries = ["history to", "town. lake", "nothing"]
    served_hits = asked.search(queries, 2)
    wanted = SmallRetriever().search(queries, 2)
    if protocol == "asearcher":
        wanted = [[Hit(hit.document, 0.0) for hit in hits] for hits in wanted]
    assert served_hits == wanted
    assert [len(hits) for hits in served_hits] == [2, 1, 0]


def test_pages_are_accessed_by_what_was_retrieved(address: str) -> None:
    asked = Asked(address, protocol="asearcher")
    assert [asked.access(document.id) for document in DOCUMENTS] == list(DOCUMENTS)
    assert asked.access("10") is None


def test_the_requests_are_those_of_the_protocols() -> None:
    with ChatServer([GOOD], routes=ROUTES) as server:
        Asked(server.root).search(["a"], 3)
        Asked(server.root + "/", protocol="single").search(["b", "c"], 1)
    assert server.bodies == [
        {"queries": ["a"], "topk": 3, "return_scores": True},
        {"query": "b", "topk": 1, "return_scores": True},
        {"query": "c", "topk": 1, "return_scores": True},
    ]


def test_a_token_is_sent_and_shown_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_TOKEN", "secret-42")
    with ChatServer([GOOD, Answer(b"no", status=403)], routes=ROUTES) as server:
        asked = Asked(server.root, token_variable="SEARCH_TOKEN")
        asked.search(["a"], 1)
        line = refused(lambda: asked.search(["a"], 1), EngineError.exit_code, "403")
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer secret-42"}
    assert "secret" not in line
    monkeypatch.setenv("SEARCH_TOKEN", "two\nlines")
    refused(lambda: Asked("http://a", token_variable="SEARCH_TOKEN"), 4, "retriever.token_variable", "SEARCH_TOKEN")


@pytest.mark.parametrize(
    "passing", [Answer(b"busy", status=503), Answer(status=500), Answer(status=429), Answer({"result": []}, cut=3)]
)
def test_what_may_pass_is_asked_again_after_longer_pauses(passing: Answer) -> None:
    with ChatServer([passing, passing, GOOD], routes=ROUTES) as server:
        asked = Asked(server.root)
        ((hit,),) = asked.search(["a"], 1)
    assert (hit.document.title, hit.score) == ("John Dunn", 2.5)
    assert asked.pauses == [0.25, 0.5]


@pytest.mark.parametrize(
    ("script", "attempts", "words"),
    [
        ([Answer(b"x\x1b[31m" * 99, status=502)], 3, "502"),
        ([Answer(b"no such route", status=404)], 1, "404"),
        ([Answer(status=307, headers={"Location": "http://127.0.0.1:1/"})], 1, "307"),
        ([Answer(b"", cut=0, headers={"Content-Length": "9"})], 3, "connection"),
        ([Answer({"result": [[ROW]]}, drip=True)], 3, "retriever.request_seconds"),
    ],
)
def test_what_fails_for_good_is_one_line(script: Script, attempts: int, words: str) -> None:
    with ChatServer(script, routes=ROUTES) as server:
        asked = Asked(server.root, retries=2, request_seconds=0.1)
        line = refused(lambda: asked.search(["a"], 1), EngineError.exit_code, [server.root, words])
    assert line.isprintable()
    assert len(server.bodies) == attempts


@pytest.mark.parametrize(
    "body",
    [
        b"<html>it works</html>",
        b"\xff\xfe",
        b"",
        NESTED,
        {"results": [[ROW]]},
        {"result": ROW},
        {"result": [ROW]},
        {"result": []},
        {"result": [[ROW], [ROW]]},
        {"result": [[ROW, ROW]]},
        {"result": [[{"document": {"id": "8"}, "score": 1}]]},
        {"result": [[{**ROW, "score": "high"}]]},
        {"result": [[{**ROW, "document": None}]]},
    ],
)
def test_nonsense_is_one_line_and_not_asked_for_again(body: Any) -> None:
    with ChatServer([Answer(body)], routes=ROUTES) as server:
        asked = Asked(server.root)
        line = refused(lambda: asked.search(["a"], 1), EngineError.exit_code, [server.root, "search-r1"])
    assert line.isprintable()
    assert len(server.bodies) == 1


def test_a_huge_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retriever_client, "LARGEST_BODY", 1000)
    with ChatServer([Answer(b" " * 100_000)], routes=ROUTES) as server:
        refused(lambda: Asked(server.root).search(["a"], 1), EngineError.exit_code, "1000", "results=")


def test_where_nobody_listens_it_is_said_before_anything_is_asked() -> None:
    closing = Answer(GOOD.body, headers={"Connection": "close"})
    with ChatServer([closing], routes=ROUTES) as server:
        asked = Asked(server.root, retries=1)
        asked.require_listener()
        asked.search(["a"], 1)
    assert len(server.bodies) == 1
    # The server that has answered is down now.
    refused(lambda: asked.search(["a"], 1), EngineError.exit_code, [server.root, "2 attempts"])
    with pytest.raises(MissingError):
        asked.require_listener()
    refused(asked.require_listener, MissingError.exit_code, server.root, "retriever.base_url=")


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "ftp://a", "http://", "http://u:p@a", "http://a?x", "http://[::"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    settings = EnvironmentSettings(name="search_qa", options={"retriever": {"base_url": url}})
    refused(lambda: SearchQaWorld(settings), 2, "environment.options.retriever.base_url", "http://HOST:PORT")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"\xff", 400),
        (b"{}", 400),
        (b'{"queries": []}', 400),
        (b'{"queries": "one"}', 400),
        (b'{"queries": ["a"], "topk": 0}', 400),
        (b'{"queries": ["a"], "topk": 1000}', 400),
        (b" " * (LARGEST_REQUEST + 1), 413),
        (b'{"query": "Dunn"}', 200),
    ],
)
def test_the_server_refuses_what_is_not_a_request(address: str, body: bytes, status: int) -> None:
    answer = httpx.post(f"{address}/retrieve", content=body)
    assert answer.status_code == status
    (name,) = msgspec.json.decode(answer.content, type=dict[str, Any])
    assert name == ("result" if status == 200 else "error")
    assert httpx.get(f"{address}/retrieve").status_code == 405


def test_the_longest_wait_is_known() -> None:
    options = HttpRetrieverOptions(base_url="http://a", request_seconds=2, retries=2)
    assert options.longest_seconds == 3 * 2 + 0.25 + 0.5
