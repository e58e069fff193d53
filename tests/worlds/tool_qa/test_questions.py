"""The generated questions: the schema of MMLU-Pro, one right option, disjoint splits, and texts that are read back."""

import math
from collections import Counter

import pytest
from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from agentcli.worlds.tool_qa.judge import letters_of, same_number, stated, states
from agentcli.worlds.tool_qa.knowledge import TEMPLATES
from agentcli.worlds.tool_qa.questions import (
    LETTERS,
    PROGRAMS,
    Sizes,
    ToolQaOptions,
    ToolQuestion,
    drafts,
    draw_question,
    needs_of,
    next_calls,
    read_question,
)
from agentcli.worlds.tool_qa.tools.registry import TOOLS
from refusal import refused

OPTIONS = ToolQaOptions()
MMLU_PRO = (
    *("biology", "business", "chemistry", "computer science", "economics", "engineering", "health"),
    *("history", "law", "math", "other", "philosophy", "physics", "psychology"),
)
"""Its 14 categories."""


def drawn(split: str, number: int, options: ToolQaOptions = OPTIONS) -> list[ToolQuestion]:
    return [draw_question(options, split, index) for index in range(number)]


def test_rows_are_those_of_mmlu_pro_with_one_right_option() -> None:
    for question in drawn("train", 300):
        row = question.row
        assert len(row.options) == len(set(row.options)) == 10
        assert row.answer == LETTERS[row.answer_index]
        assert row.category in MMLU_PRO
        value = question.needs[-1].value
        assert letters_of(row.options, value, LETTERS) == [row.answer]


def test_all_categories_and_templates_are_drawn_in_turns() -> None:
    kinds = Counter(question.row.category for question in drawn("train", 280))
    assert kinds == dict.fromkeys(MMLU_PRO, 20)
    assert {question.row.src for question in drawn("train", 1200)} == {f"tool_qa/{one.name}" for one in TEMPLATES}


def test_splits_share_no_question_and_seeds_draw_others() -> None:
    texts = {split: [question.row.question for question in drawn(split, 300)] for split in ("train", "test")}
    texts["valid"] = [question.row.question for question in drawn("valid", 100)]
    train, valid, test = (set(texts[split]) for split in ("train", "valid", "test"))
    assert not train & test
    assert not valid & (train | test)
    assert all(len(set(texts[split])) == len(texts[split]) for split in texts)
    other = [question.row.question for question in drawn("train", 300, ToolQaOptions(seed=1))]
    assert train != set(other)
    assert not set(other) & test, "the text alone says where a question belongs"


def test_a_task_means_the_same_for_ever_however_many_there_are() -> None:
    first = drawn("test", 40)
    draw_question.cache_clear()
    drafts.cache_clear()
    assert drawn("test", 40) == first
    assert drawn("test", 40, ToolQaOptions(sizes=Sizes(test=60))) == first


def test_what_is_drawn_is_read_back_as_its_template() -> None:
    for question in drawn("train", 200):
        reading = read_question(question.row.question)
        assert reading is not None
        assert question.row.src == f"tool_qa/{reading.template.name}"
        assert [need.fact for need in needs_of(*reading)] == [need.fact for need in question.needs]
        assert [need.calls for need in needs_of(*reading)] == [need.calls for need in question.needs]
    assert read_question("Which is heavier, lead or gold?") is None
    assert read_question("") is None


def test_templates_name_tools_and_slots_that_exist() -> None:
    assert len({template.name for template in TEMPLATES}) == len(TEMPLATES)
    assert {template.category for template in TEMPLATES} == set(MMLU_PRO)
    for template in TEMPLATES:
        assert {tool for tool, _ in template.calls} <= set(TOOLS)
        assert bool(template.calls) == bool(template.formula or template.program)
        assert template.program in ("", *PROGRAMS)


def test_a_conversion_is_asked_for_at_once_and_a_sum_waits_for_what_it_needs() -> None:
    miles = read_question("How many kilometres are 12 miles?")
    assert miles is not None
    need, calls = next_calls(needs_of(*miles), {})
    assert (need.fact, calls) == ("", [("units", "12 mile to kilometre")])
    _, calls = next_calls(needs_of(*miles), {"v": "1.6"})
    assert ("calculator", "12 * 1.6") in calls
    income = read_question("What is the total income of Xland, in thousand million crowns?")
    assert income is not None
    assert next_calls(needs_of(*income), {})[0].fact == "population of Xland"
    assert next_calls(needs_of(*income), {"v": "3"})[0].fact == "income per head of Xland"
    assert next_calls(needs_of(*income), {"v": "3", "w": "4"})[1][0] == ("calculator", "3 * 4")


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("x = 1428", "1428", True),
        ("75.639168 kilometre", "75.6392", True),
        ("75.7 kilometre", "75.6392", False),
        ("the 14281 men", "1428", False),
        ("-1428", "1428", False),
        ("1e3", "1000", True),
        ("The inventor is Hamas.", "Hamas", True),
        ("The inventor is hamas", "Hamas", True),
        ("The inventor is Hamasson.", "Hamas", False),
        ("v2.5", "2.5", False),
        ("", "1", False),
    ],
)
def test_what_a_text_states(text: str, value: str, holds: bool) -> None:
    assert states(text, value) is holds


def test_the_value_of_a_fact_is_read_out_of_sentences() -> None:
    texts = ["Nothing.", "The density of Gavite is 31 kilograms. The density of Morite is 12."]
    assert stated(texts, "density of Gavite") == "31"
    assert stated(texts, "density of Morite") == "12"
    assert stated(texts, "density of Xite") is None
    assert stated(["kilometre per mile = 1.609344"], "kilometre per mile") == "1.609344"
    assert stated(["There are 1.609344 kilometre per mile."], "kilometre per mile") == "1.609344"
    assert same_number(1.000001, 1.0)
    assert not same_number(1.001, 1.0)
    assert not same_number(math.inf, 12.0)


@pytest.mark.parametrize(
    ("options", "names", "remedy"),
    [
        ({"templates": ["produkt"]}, "environment.options.templates", "product"),
        ({"templates": []}, "environment.options.templates", "length >= 1"),
        ({"choices": 1}, "environment.options.choices", ""),
        ({"choices": 11}, "environment.options.choices", ""),
        ({"sizes": {"train": 0}}, "environment.options.sizes.train", ""),
        ({"sizes": {"trian": 5}}, "environment.options.sizes.trian", "train"),
        ({"seed": -1}, "environment.options.seed", ""),
        ({"tools": 8}, "environment.options.tools", ""),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, object], names: str, remedy: str) -> None:
    settings = EnvironmentSettings(name="tool_qa", options=options)
    refused(lambda: make_world(settings), names=names, remedy=remedy)


def test_a_world_of_some_templates_and_options() -> None:
    options = {"templates": ["product", "school"], "choices": 4, "sizes": {"train": 10, "test": 3}}
    made = make_world(EnvironmentSettings(name="tool_qa", options=options))
    tasks = made.tasks("train")
    assert [task.kind for task in tasks] == ["math", "philosophy"] * 5
    assert {task.attributes["steps"] for task in tasks} == {"1"}
    assert len(made.tasks("test")) == 3


def test_more_questions_than_there_are_is_refused() -> None:
    options = {"templates": ["school"], "sizes": {"test": 50}}
    made = make_world(EnvironmentSettings(name="tool_qa", options=options))
    refused(lambda: made.tasks("test"), names="environment.options.sizes.test", remedy="fewer")
