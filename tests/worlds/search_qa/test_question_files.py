"""Questions from files laid out as the data sets are: every layout, every format, and one line for each fault."""

from pathlib import Path
from typing import Any

import pytest
from agentcli.worlds.search_qa.questions import Question
from agentcli.worlds.search_qa.source import _aliases, read_questions, source_of, split_of
from refusal import refused
from written_rows import write

Values = dict[str, Any]

HOTPOT = {
    "_id": "5a7a06935542990198eaf050",
    "question": "Which magazine was started first?",
    "answer": "Arthur's Magazine",
    "type": "comparison",
    "level": "hard",
    "supporting_facts": [["Arthur's Magazine", 0]],
    "context": [["Radio City", ["Radio City is a station."]]],
}
TWO_WIKI = {
    "_id": "13f5ad2c088c11ebbd6fac1f6bf848b6",
    "type": "bridge_comparison",
    "question": "Are both directors from the same country?",
    "answer": "no",
    "evidences": [["a", "b", "c"]],
    "supporting_facts": [],
    "context": [],
}
MUSIQUE = {
    "id": "3hop1__482757_12019",
    "paragraphs": [{"idx": 0, "title": "Green", "paragraph_text": "..", "is_supporting": True}],
    "question": "When was the institute founded?",
    "question_decomposition": [],
    "answer": "1949",
    "answer_aliases": ["the year 1949"],
    "answerable": True,
}
NQ_OPEN = {"question": "who sings does he love me", "answer": ["Linda Davis", "Reba McEntire"]}
FLASH = {"id": "test_3", "question": "who got the prize", "golden_answers": ["Röntgen"], "metadata": {"level": "easy"}}
BAMBOOGLE = {"Question": "Who was president when it was founded?", "Answer": "James Madison"}
TRIVIA = {
    "question": "Who wrote it?",
    "question_id": "tc_1",
    "answer": {"aliases": ["S. Lewis", "Lewis"], "normalized_aliases": [], "value": "Sinclair Lewis", "type": "W"},
}
POPQA = {"id": 4222362, "question": "What is his occupation?", "possible_answers": '["politician", "pol"]', "prop": "x"}
LAYOUTS = {
    "hotpot_dev_distractor_v1.json": HOTPOT,
    "2wiki_dev.json": TWO_WIKI,
    "musique_ans_v1.0_dev.jsonl": MUSIQUE,
    "NQ-open.dev.jsonl": NQ_OPEN,
    "nq/dev.jsonl": FLASH,
    "bamboogle/dev-00000-of-00001.parquet": BAMBOOGLE,
    "triviaqa/validation.parquet": TRIVIA,
    "popqa/valid.jsonl.zst": POPQA,
    "popqa/valid.jsonl.gz": POPQA,
}


def only(path: Path, split: str = "valid") -> Question:
    (question,) = read_questions(path, split)
    return question


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_read_unchanged(tmp_path: Path, name: str) -> None:
    values = LAYOUTS[name]
    question = only(write(tmp_path / name, [values]))
    assert question.question in (values.get("question"), values.get("Question"))
    assert question.split == "valid"
    assert question.answers
    assert only(tmp_path).id == question.id


def test_answers_have_their_aliases(tmp_path: Path) -> None:
    wanted = {
        "a_dev.jsonl": (MUSIQUE, ("1949", "the year 1949")),
        "b_dev.jsonl": (NQ_OPEN, ("Linda Davis", "Reba McEntire")),
        "c_dev.jsonl": (TRIVIA, ("Sinclair Lewis", "S. Lewis", "Lewis")),
        "d_dev.jsonl": (POPQA, ("politician", "pol")),
        "e_dev.jsonl": ({"question": "q", "answer": "x", "answer_aliases": ["x", " ", "y "]}, ("x", "y")),
    }
    for name, (values, answers) in wanted.items():
        assert only(write(tmp_path / name, [values])).answers == answers


def test_2wiki_names_further_answers_in_a_file_beside(tmp_path: Path) -> None:
    write(tmp_path / "2wiki" / "dev.json", [{**TWO_WIKI, "answer": "Oslo", "answer_id": "Q585"}])
    names = tmp_path / "2wiki" / "id_aliases.json"
    names.write_text('{"Q_id": "Q1", "aliases": ["x"]}\n{"Q_id": "Q585", "aliases": ["Christiania"], "demonyms": []}\n')
    assert only(tmp_path).answers == ("Oslo", "Christiania")
    assert read_questions(tmp_path, "test") == ()
    names.write_text('{"Q_id": 1}\n')
    _aliases.cache_clear()
    refused(lambda: read_questions(tmp_path / "2wiki", "valid"), 3, ["id_aliases.json:1", "Q_id"])


def test_kinds_levels_and_hops_can_be_asked_for(tmp_path: Path) -> None:
    hotpot = only(write(tmp_path / "hotpot_dev.json", [HOTPOT]))
    assert (hotpot.kind, hotpot.id) == ("comparison", f"hotpot_dev/{HOTPOT['_id']}")
    assert hotpot.attributes == {"source": "hotpot_dev", "type": "comparison", "level": "hard"}
    musique = only(write(tmp_path / "musique" / "dev.jsonl", [MUSIQUE]))
    assert (musique.kind, musique.attributes) == ("musique", {"source": "musique", "hops": "3"})
    flash = only(write(tmp_path / "nq" / "dev.jsonl", [FLASH]))
    assert (flash.id, flash.attributes) == ("nq/test_3", {"source": "nq", "level": "easy"})


@pytest.mark.parametrize(
    ("name", "split", "source"),
    [
        ("nq/train.jsonl", "train", "nq"),
        ("nq/test-00000-of-00001.parquet", "test", "nq"),
        ("hotpot_train_v1.1.json", "train", "hotpot_train_v1.1"),
        ("musique_ans_v1.0_dev.jsonl.gz", "valid", "musique_ans_v1.0_dev"),
        ("x/validation.jsonl", "valid", "x"),
        ("bamboogle.jsonl", "test", "bamboogle"),
        ("contest.jsonl", "test", "contest"),
    ],
)
def test_split_and_source_are_the_names(tmp_path: Path, name: str, split: str, source: str) -> None:
    assert split_of(tmp_path / name) == split
    assert source_of(tmp_path / name) == source


def test_files_of_other_splits_are_not_read(tmp_path: Path) -> None:
    write(tmp_path / "2wiki" / "test.json", [{**TWO_WIKI, "answer": ""}])
    write(tmp_path / "2wiki" / "dev.json", [TWO_WIKI])
    write(tmp_path / "hotpot" / "dev.json", [HOTPOT])
    assert [one.kind for one in read_questions(tmp_path, "valid")] == ["bridge_comparison", "comparison"]
    refused(lambda: read_questions(tmp_path, "test"), 3, ["2wiki/test.json: row 1", "answer"], "dev")
    assert read_questions(tmp_path, "train") == ()


def test_what_cannot_be_answered_is_left_out(tmp_path: Path) -> None:
    rows = [{**MUSIQUE, "answerable": False, "answer": ""}, MUSIQUE]
    assert only(write(tmp_path / "musique_full_dev.jsonl", rows)).answers[0] == "1949"


@pytest.mark.parametrize("name", ["dev.jsonl", "dev.json", "dev.parquet", "dev.jsonl.zst", "dev.jsonl.gz"])
@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"question": 7, "answer": "x"}, "question"),
        ({"question": "  ", "answer": "x"}, "question"),
        ({"answer": "x"}, "question"),
        ({"question": "q"}, "answer"),
        ({"question": "q", "answer": [1]}, "answer"),
        ({"question": "q", "answer": " "}, "answer"),
        ({"question": "q", "golden_answers": "x"}, "golden_answers"),
        ({"question": "q", "possible_answers": "x"}, "possible_answers"),
        ({"question": "q", "answer": "x", "level": 1}, "level"),
    ],
)
def test_a_row_that_does_not_fit_is_one_line(tmp_path: Path, name: str, values: Values, field: str) -> None:
    path = write(tmp_path / name, [values])
    place = f"{path}:1" if ".jsonl" in name else str(path)
    refused(lambda: read_questions(tmp_path, "valid"), 3, [place, field])


@pytest.mark.parametrize("name", ["dev.jsonl", "dev.json", "dev.parquet", "dev.jsonl.zst", "dev.jsonl.gz"])
def test_half_a_download_is_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [NQ_OPEN, NQ_OPEN])
    path.write_bytes(path.read_bytes()[:-40])
    refused(lambda: read_questions(path, "valid"), 3, str(path))


def test_the_same_question_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.jsonl", [FLASH, FLASH])
    refused(lambda: read_questions(path, "valid"), 3, [f"{path}:2", "test_3"])


def test_rows_without_ids_are_counted_through_the_folder(tmp_path: Path) -> None:
    for name in ("nq/dev-00000-of-00002.parquet", "nq/dev-00001-of-00002.parquet", "pop/dev.jsonl"):
        write(tmp_path / name, [NQ_OPEN, NQ_OPEN])
    ids = [question.id for question in read_questions(tmp_path, "valid")]
    assert ids == ["nq/valid-0", "nq/valid-1", "nq/valid-2", "nq/valid-3", "pop/valid-0", "pop/valid-1"]


def test_a_file_of_several_data_sets_names_them(tmp_path: Path) -> None:
    path = write(tmp_path / "test.parquet", [{**FLASH, "data_source": name} for name in ("nq", "popqa")])
    questions = read_questions(path, "test")
    assert [(question.id, question.attributes["source"]) for question in questions] == [
        ("nq/test_3", "nq"),
        ("popqa/test_3", "popqa"),
    ]


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dev.csv").write_text("question,answer\n")
    refused(lambda: read_questions(tmp_path / "dev.csv", "valid"), 3, "dev.csv", ".jsonl")
    refused(lambda: read_questions(tmp_path, "valid"), 3, str(tmp_path), ".jsonl")
    refused(lambda: read_questions(tmp_path / "nowhere", "valid"), 3, "nowhere")
