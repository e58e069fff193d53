"""What is shown of documents: titles that hold the separator, and passages that share an id."""

from collections.abc import Sequence

import pytest
from agentcli.records.types import Task
from agentcli.worlds.search_qa.engine import Library, SearchQaEngine, titles_in
from agentcli.worlds.search_qa.options import SearchQaOptions
from agentcli.worlds.search_qa.questions import Question
from agentcli.worlds.search_qa.retrievers import Document, Hit
from agentcli.worlds.search_qa.source import QaSource

FILM = Document("12", "Star Wars: Episode IV", "A film: of 1977. It won.")
SONG = Document("13", '"Heroes" (song)', "A song.")
PLAIN = Document("14", "Ruth Scurr", "She wrote: books.")
BROWSE = SearchQaOptions(actions="browse", part=10)
TASK = Task(id="x", world="search_qa", split="test", kind="")


class Named:
    """A Retriever whose hits are the documents that it was made of, by query."""

    def __init__(self, **hits: Sequence[Document]) -> None:
        self._hits = hits

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        return [[Hit(document, 1.0) for document in self._hits[query]][:k] for query in queries]

    def access(self, id: str) -> Document | None:
        return None


class Source(QaSource):
    """One question, over such a retriever."""

    def __init__(self, retriever: Named) -> None:
        self._named = retriever

    @property
    def retriever(self) -> Named:
        return self._named

    def question(self, task: Task) -> Question:
        return Question(id="x", question="Who?", answers=("Ann",), split="test", kind="", attributes={})


@pytest.mark.parametrize("document", [FILM, SONG, PLAIN])
def test_a_title_is_named_whole_and_opens_its_document(document: Document) -> None:
    engine = SearchQaEngine(Source(Named(all=[FILM, SONG, PLAIN])), BROWSE)
    engine.start(TASK)
    results = engine.step("search[all]").text
    assert titles_in([results]) == [f"[{one.id}] {one.title}" for one in (FILM, SONG, PLAIN)]
    for name in (document.title, f'"{document.title}"'):
        page = engine.step(f"access[{name}]")
        assert page.accepted
        assert titles_in([page.text]) == [f"[{document.id}] {document.title}"]


def test_passages_of_one_page_are_different_states() -> None:
    """A served retriever may name each passage by the address of its page."""
    early = Document("http://a", "Ann", "Born in 1950.")
    late = Document("http://a", "Ann", "Died in 2001.")
    engine = SearchQaEngine(Source(Named(early=[early], late=[late], both=[late, early])), BROWSE)
    engine.start(TASK)
    start = engine.snapshot()
    one = engine.step("search[early]")
    both = engine.step("search[late]")
    engine.restore(start)
    two = engine.step("search[late]")
    assert len({one.state, two.state, both.state}) == 3
    assert len({one.canonical, two.canonical, both.canonical}) == 3
    assert "Born in 1950." in str(one.canonical)
    engine.restore(start)
    again = engine.step("search[both]")
    assert (again.state, again.canonical) == (both.state, both.canonical)


def test_a_title_opens_the_page_and_not_the_passage(monkeypatch: pytest.MonkeyPatch) -> None:
    passage, page = (Document("http://a", "Ann", text) for text in ("Born in 1950.", "Born in 1950. Died in 2001."))
    retriever = Named(ann=[passage])
    monkeypatch.setattr(retriever, "access", {page.id: page}.get)
    engine = SearchQaEngine(Source(retriever), SearchQaOptions(actions="browse"))
    engine.start(TASK)
    engine.step("search[ann]")
    by_title = engine.step("access[Ann]")
    assert "Died in 2001." in by_title.text
    assert engine.step("access[http://a]").text == by_title.text


def test_the_text_of_a_result_is_its_title_and_beginning() -> None:
    library = Library(Named(), SearchQaOptions(actions="browse", snippet=6))
    assert library.beginning(FILM) == "A film ..."
