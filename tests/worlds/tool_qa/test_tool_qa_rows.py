"""Rows of MMLU-Pro from files: every format, in the splits by their texts, and refused with file, row and field."""

from pathlib import Path
from typing import Any

import pytest
from agentcli.environments.protocol import Context
from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from agentcli.worlds.generated import split_of
from agentcli.worlds.tool_qa.questions import load_rows
from agentcli.worlds.tool_qa.world import ToolQaHabits, ToolQaWorld, compact, insight_of
from refusal import refused
from written_rows import write

Values = dict[str, Any]


def row(number: int, **changes: Any) -> Values:
    """A row as the data set has it."""
    values = {
        "question_id": number,
        "question": f"Which of these is number {number}?",
        "options": [f"the number {other}" for other in range(number, number + 4)],
        "answer": "A",
        "answer_index": 0,
        "category": "math" if number % 2 else "law",
        "cot_content": "",
        "src": "ori_mmlu-test",
    }
    return values | changes


ROWS = [row(number) for number in range(70, 130)]


def world(data: Path, **options: Any) -> ToolQaWorld:
    made = make_world(EnvironmentSettings(name="tool_qa", data=str(data), options=options))
    assert isinstance(made, ToolQaWorld)
    return made


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl", "rows.jsonl.zst", "rows.json"])
def test_every_format_is_read_unchanged(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, ROWS)
    for data in (path, tmp_path):
        loaded = load_rows(data)
        assert list(loaded) == list(range(70, 130))
        assert loaded[71].question == ROWS[1]["question"]
        assert loaded[71].options == tuple(ROWS[1]["options"])
        assert loaded[71].category == "math"


def test_a_folder_of_files_is_one_data_set(tmp_path: Path) -> None:
    write(tmp_path / "data" / "test-00000-of-00001.parquet", ROWS[:40])
    write(tmp_path / "data" / "validation-00000-of-00001.parquet", ROWS[40:])
    (tmp_path / "README.md").write_text("MMLU-Pro")
    assert len(load_rows(tmp_path)) == 60


def test_splits_follow_from_the_text_and_sizes_bound_them(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", ROWS)
    tasks = {split: world(data).tasks(split) for split in ("train", "valid", "test")}
    for split, members in tasks.items():
        wanted = {f"mmlu-pro/{values['question_id']}" for values in ROWS if split_of(values["question"]) == split}
        assert {task.id for task in members} == wanted
        assert {task.kind for task in members} <= {"math", "law"}
    assert sum(map(len, tasks.values())) == 60
    few = world(data, sizes={"train": 5}).tasks("train")
    assert few == tasks["train"][:5]
    assert world(data, seed=1, sizes={"train": 5}).tasks("train") != few


def test_real_questions_are_played_and_the_plan_is_the_answer(tmp_path: Path) -> None:
    made = world(write(tmp_path / "rows.jsonl", ROWS))
    engine = made.engine()
    task = made.tasks("train")[0]
    start = engine.start(task)
    assert engine.plan() == ["answer[A]"]
    assert engine.step("calculator[6 * 7]").text == "calculator: 42"
    assert engine.judge("6 * 7").process_ok is False
    context = Context(task=task, instruction=start.instruction, observations=(start.observation.text,))
    assert "Which of these" in compact(context)
    assert made.next(context, 1, ToolQaHabits()).action.startswith("search [ Which")
    assert engine.step("answer[A]").end == "success"


def test_a_question_of_several_lines_is_read_whole(tmp_path: Path) -> None:
    question = "Which of these follows?\nA: All ravens are black.\nI: This is a raven."
    made = world(write(tmp_path / "rows.jsonl", [row(number, question=f"{number} {question}") for number in range(9)]))
    task = made.tasks("train")[0]
    start = made.engine().start(task)
    context = Context(task=task, instruction=start.instruction, observations=(start.observation.text,))
    insight = insight_of(context)
    assert insight.question.endswith("Which of these follows? A: All ravens are black. I: This is a raven.")
    assert len(insight.options) == 4
    assert insight.options[0].startswith("the number")


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl", "rows.jsonl.zst", "rows.json"])
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"question_id": "seventy"}, "question_id"),
        ({"options": ["one"]}, "options"),
        ({"options": ["one"] * 11, "answer": "A"}, "options"),
        ({"answer_index": 4}, "answer_index"),
        ({"answer_index": -1}, "answer_index"),
        ({"answer": "B"}, "answer"),
        ({"answer": "\x1b[31m"}, "answer"),
        ({"question": " "}, "question"),
        ({"category": ""}, "category"),
    ],
)
def test_a_bad_row_is_refused_with_file_row_and_field(tmp_path: Path, name: str, changes: Values, field: str) -> None:
    rows = [row(2, **changes), row(3, **changes)] if "question_id" in changes else [row(1), row(2, **changes)]
    path = write(tmp_path / name, rows)
    line = refused(lambda: load_rows(path), code=3, names=(name, field))
    assert line.isprintable()


def test_what_is_missing_twice_or_no_data_is_refused(tmp_path: Path) -> None:
    incomplete = {name: value for name, value in row(1).items() if name != "options"}
    refused(lambda: load_rows(write(tmp_path / "a.jsonl", [incomplete])), code=3, names=("a.jsonl:1", "options"))
    refused(
        lambda: load_rows(write(tmp_path / "b.jsonl", [row(1), row(1)])), code=3, names=("b.jsonl:2", "question_id")
    )
    refused(lambda: load_rows(tmp_path / "none"), code=3, names="none")
    (tmp_path / "empty").mkdir()
    refused(lambda: load_rows(tmp_path / "empty"), code=3, names="empty", remedy=".parquet")
    (tmp_path / "c.csv").write_text("a,b")
    refused(lambda: load_rows(tmp_path / "c.csv"), code=3, names="c.csv", remedy=".jsonl")
    (tmp_path / "d.parquet").write_bytes(b"PAR1 no PAR1")
    refused(lambda: load_rows(tmp_path / "d.parquet"), code=3, names="d.parquet")
    one = world(write(tmp_path / "e.jsonl", [row(1)]))
    splits = [split for split in ("train", "valid", "test") if split != split_of(row(1)["question"])]
    for split in splits:
        refused(lambda split=split: one.tasks(split), code=3, names=("e.jsonl", split), remedy="--data")


def test_a_torn_last_row_is_no_row_still_owed(tmp_path: Path) -> None:
    """A file of questions is not written by a command that could go on with it."""
    path = write(tmp_path / "rows.jsonl", ROWS)
    path.write_bytes(path.read_bytes()[:-30])
    refused(lambda: load_rows(path), 3, f"{path}:{len(ROWS)}")
