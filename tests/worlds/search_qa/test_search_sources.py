"""Where search QA has its questions and documents from: files and served retrievers in the place of generated ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import Exam
from agentcli.environments.registry import make_world
from agentcli.errors import ReplayMismatchError
from agentcli.records.files import read_records
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Outcome, Tree
from agentcli.worlds.search_qa import retrievers
from agentcli.worlds.search_qa.options import HttpRetrieverOptions
from agentcli.worlds.search_qa.retriever_client import HttpRetriever
from agentcli.worlds.search_qa.world import SearchQaWorld
from chat_server import Answer, ChatServer, Script
from command_line import agentcli
from pools import play, with_pool
from refusal import refused
from served_app import served
from served_worlds import served as process
from small_retriever import DOCUMENTS, SmallRetriever

ROUTES = ("/retrieve", "/access")
QUESTIONS = [
    {"id": "a", "question": "Whom did Ruth Scurr marry?", "answer": "John Dunn", "answer_aliases": ["Dunn"]},
    {"id": "b", "question": "Where did he read history?", "answer": "King's, Cambridge"},
]
SMALL = (
    "--env",
    "search_qa",
    "--set",
    "environment.options.documents=40",
    "--set",
    "environment.options.sizes.train=3",
)
RETRIEVER = "environment.options.retriever.base_url"


@pytest.fixture
def data(empty_folder: Path) -> Path:
    """A folder with corpus.jsonl and questions/test.jsonl, which is also the present one."""
    rows = [{"id": document.id, "contents": document.contents} for document in DOCUMENTS]
    written = {"corpus.jsonl": rows, "questions/test.jsonl": QUESTIONS}
    for name, values in written.items():
        path = empty_folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return empty_folder


def world(**settings: Any) -> SearchQaWorld:
    made = make_world(EnvironmentSettings(name="search_qa", **settings))
    assert isinstance(made, SearchQaWorld)
    return made


def test_questions_and_documents_of_files_are_played(data: Path) -> None:
    real = world(data="questions", options={"corpus": "corpus.jsonl", "actions": "browse"})
    tasks = real.tasks("test")
    assert [task.id for task in tasks] == ["questions/a", "questions/b"]
    # The corpus lies in a folder of questions, and holds none.
    assert world(data=".", options={"corpus": "./corpus.jsonl"}).tasks("test") == tasks
    engine = real.engine()
    assert engine.start(tasks[0]).instruction.startswith("Whom did Ruth Scurr")
    assert "[7] Ruth Scurr" in engine.step("search[married]").text
    assert "married to John Dunn" in engine.step("access[7]").text
    assert engine.step("answer[the Dunn]").end == "success"
    assert real.exam(tasks[0], "answer[he]") == Exam(
        question="Whom did Ruth Scurr marry?", references=("John Dunn", "Dunn"), answer="he"
    )
    assert real.exam(tasks[0], "search[he]") is None


def test_the_index_is_made_with_the_engine(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search would have to make it before its deadline."""
    real = world(data="questions", options={"corpus": "corpus.jsonl"})
    engine = real.engine()
    monkeypatch.setattr(retrievers.Bm25Index, "over", None)
    engine.start(real.tasks("test")[0])
    assert "[7] Ruth Scurr" in engine.step("search[married]").text


def test_a_corpus_that_is_served_alone_is_indexed_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again in an engine process, which has no questions."""
    monkeypatch.setattr(retrievers.Bm25Index, "over", None)
    assert world(options={"corpus": "corpus.jsonl"}).engine()


def test_a_served_corpus_is_played_as_the_corpus(data: Path) -> None:
    options = {"actions": "browse", "results": 2}
    near = world(data="questions", options={**options, "corpus": "corpus.jsonl"})
    with served(near.routes()) as url:
        far = world(data="questions", options={**options, "retriever": {"base_url": url, "protocol": "asearcher"}})
        task = near.tasks("test")[1]
        assert far.tasks("test")[1] == task
        engines = [near.engine(), far.engine()]
        assert engines[0].start(task) == engines[1].start(task)
        for action in ("search[John Dunn history]", "access[8]", "read[Dunn]", "access[99]", "answer[Cambridge]"):
            assert engines[0].step(action) == engines[1].step(action)


def test_the_expert_earns_its_reward_from_a_served_corpus(data: Path) -> None:
    with served(world(options={"documents": 40}).routes()) as url:
        done = agentcli("env", "check", *SMALL[1:], "--set", f"{RETRIEVER}={url}", "--tasks", "3")
    assert done.code == 0, done


def answer_of(*texts: str) -> Answer:
    rows = [{"document": {"id": text, "contents": f'"T"\n{text}'}, "score": 1.0} for text in texts]
    return Answer({"result": [rows]})


def test_a_corpus_alone_has_no_questions_and_can_be_served(data: Path) -> None:
    options = ("--set", "environment.options.corpus=corpus.jsonl")
    lacking = agentcli("rollout", "--env", "search_qa", "--policy", "expert", *options, "-o", "x")
    refused(lacking, 2, "search_qa train", "--data")
    with process("search_qa", *options) as url:
        asked = HttpRetriever(HttpRetrieverOptions(base_url=url, protocol="asearcher"))
        ((hit,),) = asked.search(["lakes"], 3)
        assert hit.document == asked.access("9") == DOCUMENTS[2]


def replayed(script: Script) -> tuple[list[str], list[str]]:
    """What two searches observe, where the first has to be replayed before the second, and what was asked."""

    async def body(pool: EnginePool) -> list[str]:
        first, second = real.tasks("train")[:2]
        searched = await play(pool, await pool.start(first), "search[a]")
        # The only engine now plays another task.
        await pool.start(second)
        after = await play(pool, searched, "search[b]")
        return [searched.observation.text, after.observation.text]

    with ChatServer(script, routes=ROUTES) as server:
        options = {"documents": 40, "sizes": {"train": 3}, "retriever": {"base_url": server.root}}
        settings = EnvironmentSettings(name="search_qa", options=options)
        real = make_world(settings)
        texts: list[str] = with_pool(settings, body, engines_per_worker=1)
        return texts, [request["queries"][0] for request in server.bodies]


def test_a_replay_asks_again_and_is_exact() -> None:
    texts, asked = replayed(lambda body, _: answer_of(body["queries"][0]))
    assert texts == ["[a] T: a", "[b] T: b"]
    assert asked == ["a", "a", "b"]


def test_a_retriever_that_changes_its_answers_is_detected() -> None:
    with pytest.raises(ReplayMismatchError) as caught:
        replayed(lambda _, before: answer_of(str(before)))
    assert "[1] T: 1" in str(caught.value)


def rollout(url: str, *words: str) -> list[str]:
    line = ["rollout", *SMALL, "--policy", "search", "--leaves", "1", "-q", "-o", "x", "--set", f"{RETRIEVER}={url}"]
    return [*line, "--concurrency", "1", "--set", "environment.options.retriever.retries=0", *words]


def test_where_nobody_listens_the_command_ends_in_one_line(data: Path) -> None:
    ended = agentcli(*rollout("http://127.0.0.1:9"))
    refused(ended, 4, "http://127.0.0.1:9", f"--set {RETRIEVER}=URL")


@pytest.mark.parametrize("bad", [Answer(status=500), Answer(b"<html>"), Answer({"result": []}), Answer({}, cut=1)])
def test_a_retriever_that_fails_once_is_an_errored_leaf_and_is_asked_again(data: Path, bad: Answer) -> None:
    def once(_: dict[str, Any], before: int) -> Answer:
        return bad if before == 1 else answer_of(str(before % 2))

    with ChatServer(once, routes=ROUTES) as server:
        agentcli(*rollout(server.root))
        ends = [tree.steps[-1] for tree in read_records(Path("x/trees.jsonl"), Tree)]
        broken = [end for end in ends if end.outcome is Outcome.ERRORED]
        assert len(broken) == 1
        assert server.root in str(broken[0].error)
        agentcli(*rollout(server.root, "--resume"))
    assert all(tree.steps[-1].outcome is not Outcome.ERRORED for tree in read_records(Path("x/trees.jsonl"), Tree))


def test_served_and_generated_questions_are_not_mixed_up(data: Path) -> None:
    place = "environment.options"
    refused(
        lambda: world(data="questions"), 2, "--data questions", [f"{place}.corpus=", f"{place}.retriever.base_url="]
    )
    both = {"corpus": "corpus.jsonl", "retriever": {"base_url": "http://a"}}
    refused(lambda: world(data="questions", options=both), 2, f"{place}.corpus", f"{place}.retriever")
    slow = {"retriever": {"base_url": "http://a", "request_seconds": 30}}
    refused(lambda: world(options=slow), 2, [f"{place}.retriever.request_seconds", "60 s"], "deadline_seconds")
    refused(lambda: world(options={"retriever": {"base_url": "a"}}), 2, f"{place}.retriever.base_url", "http://")
    refused(lambda: world(options={"retriever": {}}), 2, f"{place}.retriever")
    mistyped = {"base_url": "http://a", "protocol": "search-r2"}
    refused(lambda: world(options={"retriever": mistyped}), 2, f"{place}.retriever.protocol", "search-r1")


def test_pages_want_a_protocol_that_has_them(data: Path) -> None:
    browsing = {"actions": "browse", "retriever": {"base_url": "http://a"}}
    refused(lambda: world(options=browsing), 2, "environment.options.retriever.protocol", "asearcher")
    assert SmallRetriever().access("7") == DOCUMENTS[0]
