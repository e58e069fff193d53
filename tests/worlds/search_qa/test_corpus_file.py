"""A corpus from a file: each form of it holds the same documents, and each fault is one line."""

import gzip
import json
from pathlib import Path

import pytest
import zstandard
from agentcli.worlds.search_qa.retrievers import EmbeddedRetriever, read_corpus
from refusal import refused
from small_retriever import DOCUMENTS

LINES = [json.dumps({"id": document.id, "contents": document.contents, "more": 1}) for document in DOCUMENTS]
FORMS = {"c.jsonl": bytes, "c.jsonl.zst": zstandard.compress, "c.jsonl.gz": gzip.compress}


def write(path: Path, text: str) -> Path:
    path.write_bytes(FORMS[path.name](text.encode()))
    return path


@pytest.mark.parametrize("name", FORMS)
def test_every_form_holds_the_documents(tmp_path: Path, name: str) -> None:
    text = f"{LINES[0]}\n\n{LINES[1]}\r\n{LINES[2]}"
    documents = read_corpus(write(tmp_path / name, text))
    assert tuple(documents) == DOCUMENTS
    assert [documents[place] for place in range(len(documents))] == list(DOCUMENTS)
    assert (documents[-1], list(documents[:2])) == (DOCUMENTS[2], list(DOCUMENTS[:2]))
    with pytest.raises(IndexError):
        documents[3]


def test_it_is_searched_and_accessed(tmp_path: Path) -> None:
    retriever = EmbeddedRetriever(read_corpus(write(tmp_path / "c.jsonl", "\n".join(LINES))))
    ((hit,), ()) = retriever.search(["towns on lakes", "nowhere"], 2)
    assert hit.document == DOCUMENTS[2]
    assert retriever.access("8") == DOCUMENTS[1]
    assert retriever.access("10") is None


def test_numbers_are_ids_too(tmp_path: Path) -> None:
    (document,) = read_corpus(write(tmp_path / "c.jsonl", '{"id": 3, "contents": "no title"}'))
    assert (document.id, document.title, document.text) == ("3", "no title", "")


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    "line", ['{"id": "1"}', '{"contents": "x"}', '{"id": 1, "contents": 2}', "[]", "{", LINES[0][:9]]
)
def test_a_line_that_is_no_document_is_named(tmp_path: Path, name: str, line: str) -> None:
    path = write(tmp_path / name, f"{LINES[0]}\n{line}\n")
    refused(lambda: EmbeddedRetriever(read_corpus(path)).search(["x"], 1), 3, f"{path}:2")


def test_other_files_are_refused(tmp_path: Path) -> None:
    refused(lambda: read_corpus(write(tmp_path / "c.jsonl", "\n")), 3, "c.jsonl", '"contents"')
    refused(lambda: read_corpus(tmp_path / "none.jsonl"), 3, "none.jsonl")
    refused(lambda: read_corpus(tmp_path / "corpus.tsv"), 3, "corpus.tsv", ".jsonl")
    path = write(tmp_path / "c.jsonl.gz", "\n".join(LINES))
    path.write_bytes(path.read_bytes()[:-20])
    refused(lambda: read_corpus(path), 3, str(path))
