"""The expert: it knows which documents lead to the answer, and reads them first."""

from collections.abc import Collection

from agentcli.records.calls import ANSWER, ToolCall
from agentcli.worlds.search_qa.library import Library, Shown, text_of
from agentcli.worlds.search_qa.questions.protocol import Question
from agentcli.worlds.search_qa.retrievers.protocol import Document


def plan(
    question: Question,
    shown: Collection[Shown],
    opened: Shown | None,
    library: Library,
) -> list[str]:
    """Actions that show the evidence, as far as it is known, and the answer.

    Every document is searched for first: one that no search shows ends the evidence.
    """
    calls: list[ToolCall] = []
    goals = [*question.evidence[1:], question.answers[0]]
    for title, goal in zip(question.evidence, goals, strict=False):
        steps = _steps(title, goal, shown, opened, library)
        if steps is None:
            break
        calls += steps
    calls.append(ToolCall(ANSWER, question.answers[0]))
    return [str(call) for call in calls]


def _steps(
    title: str,
    goal: str,
    shown: Collection[Shown],
    opened: Shown | None,
    library: Library,
) -> list[ToolCall] | None:
    """Calls after which a document of this title has shown `goal`; None without one."""
    pages = [one for one in shown if one.document.title == title]
    if any(goal in text_of(library, one) for one in pages):
        return []
    calls = []
    documents = [one.document for one in pages]
    if not documents:
        calls.append(ToolCall("search", title))
        documents = [hit.document for hit in library.hits(title)]
    for document in documents:
        if document.title == title and goal in document.text:
            if library.browses:
                calls += _reading(document, goal, opened, library)
            return calls
    return None


def _reading(
    document: Document, goal: str, opened: Shown | None, library: Library
) -> list[ToolCall]:
    """Opens the document unless it is open, and reads on to the part with `goal`."""
    parts = library.parts(document)
    place = next(place for place, part in enumerate(parts) if goal in part)
    read = ToolCall("read", "nothing yet")
    if opened and opened.document == document and opened.part < place:
        return [read] * (place - opened.part)
    return [ToolCall("access", document.id), *[read] * place]
