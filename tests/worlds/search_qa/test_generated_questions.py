"""The generated corpus and its questions: one right answer, splits that share no subject, nothing to be known without searching."""

from collections import Counter

import msgspec
import pytest
from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from agentcli.stages.layers import resolve
from agentcli.worlds.search_qa.options import QuestionSizes, SearchQaOptions
from agentcli.worlds.search_qa.questions import (
    RELATIONS,
    almanac,
    corpus,
    fact_sentence,
    generated_questions,
    read_question,
)
from agentcli.worlds.search_qa.retrievers import EmbeddedRetriever, document_of
from refusal import refused

OPTIONS = SearchQaOptions(documents=500, sizes=QuestionSizes(train=800, valid=50, test=200))


def test_every_answer_stands_in_the_corpus() -> None:
    texts = {document.title: document.text for document in corpus(500, 0)}
    for question in generated_questions(OPTIONS, "train"):
        wanted = read_question(question.question)
        assert wanted is not None
        assert wanted.subject == question.evidence[0]
        thing = wanted.subject
        for relation, following in zip(wanted.relations, [*question.evidence[1:], *question.answers], strict=True):
            assert fact_sentence(relation, thing, following) in texts[thing]
            thing = following
        assert (thing,) == question.answers


def test_both_kinds_are_drawn_wherever_one_looks() -> None:
    questions = generated_questions(OPTIONS, "test")
    for part in (questions, questions[::2], questions[::10]):
        kinds = Counter(question.kind for question in part)
        assert 0.3 < kinds["one hop"] / len(part) < 0.7
        assert kinds["two hops"] == len(part) - kinds["one hop"]
    assert len({question.question for question in questions}) == 200
    single = SearchQaOptions(documents=500, hops=(2,), sizes=QuestionSizes(test=30))
    assert {question.kind for question in generated_questions(single, "test")} == {"two hops"}


def test_splits_ask_about_different_things() -> None:
    subjects = {}
    for split in ("train", "valid", "test"):
        subjects[split] = {question.evidence[0] for question in generated_questions(OPTIONS, split)}
    assert not subjects["train"] & subjects["test"]
    assert not subjects["train"] & subjects["valid"]
    assert not subjects["valid"] & subjects["test"]


def test_second_hops_are_not_held_out() -> None:
    """docs/guides/search.md has the count in quickstart-search: 47 of 81."""
    options = msgspec.convert(resolve("quickstart-search", [], {}, [], {}).environment.options, SearchQaOptions)
    asked = set()
    for question in generated_questions(options, "train"):
        if question.kind == "one hop":
            asked.add((question.evidence[0], question.attributes["relations"]))
    second_hops = []
    for question in generated_questions(options, "test"):
        if question.kind == "two hops":
            second_hops.append((question.evidence[1], question.attributes["relations"].split()[1]))
    assert (sum(hop in asked for hop in second_hops), len(second_hops)) == (47, 81)


def test_a_larger_split_begins_alike() -> None:
    small = SearchQaOptions(documents=500, sizes=QuestionSizes(test=40))
    assert generated_questions(OPTIONS, "test")[:40] == generated_questions(small, "test")


def test_what_training_teaches_about_answers_is_worth_little() -> None:
    """One who never searches gives the answer that was right most often for the same relations, or the best known name."""
    known: dict[str, Counter[str]] = {}
    for question in generated_questions(OPTIONS, "train"):
        known.setdefault(question.attributes["relations"], Counter())[question.answers[0]] += 1
    right = 0
    questions = generated_questions(OPTIONS, "test")
    for question in questions:
        best = known.get(question.attributes["relations"], Counter({"": 1})).most_common(1)[0][0]
        right += best in question.answers
    assert right / len(questions) < 0.04


def test_names_are_pairs_of_shared_words() -> None:
    names = [entity.name for entity in almanac(500, 0)]
    assert len(set(names)) == 500
    words = Counter(word for name in names for word in name.split())
    assert sum(words.values()) / len(words) > 8
    assert all(len(name.split()) == 2 for name in names)


def test_a_relation_belongs_to_one_kind() -> None:
    names = [name for relations in RELATIONS.values() for name in relations]
    assert len(names) == len(set(names))


def test_a_name_leads_to_its_document_and_half_of_it_to_others() -> None:
    retriever = EmbeddedRetriever(corpus(500, 0))
    titles = [document.title for document in corpus(500, 0)][:100]
    assert [hits[0].document.title for hits in retriever.search(titles, 3)] == titles
    halves = retriever.search([title.split()[0] for title in titles], 3)
    hit = [title in [one.document.title for one in hits] for title, hits in zip(titles, halves, strict=True)]
    assert 0.1 < sum(hit) / len(hit) < 0.6
    assert retriever.search(["", "qqq"], 3) == [[], []]
    assert retriever.access("7") == corpus(500, 0)[7]
    assert retriever.access("500") is None


def test_contents_are_read_back() -> None:
    document = corpus(500, 0)[3]
    assert document.contents == f'"{document.title}"\n{document.text}'
    assert document_of("3", document.contents) == document
    assert document_of("x", "no title").text == ""


def test_more_questions_than_there_are_is_refused() -> None:
    options = {"documents": 20, "hops": [1], "sizes": {"test": 500}}
    made = make_world(EnvironmentSettings(name="search_qa", options=options))
    refused(lambda: made.tasks("test"), names="environment.options.sizes.test", remedy="environment.options.documents")


@pytest.mark.parametrize("text", ["", "Who wrote it?", "Who is the mayor of Old?", "What is the seat of A B of C D?"])
def test_a_question_of_another_hand_is_not_read(text: str) -> None:
    assert read_question(text) is None
