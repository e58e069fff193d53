"""What counts as a judge's verdict, and what is said of anything else."""

import json

import pytest
from agentcli.environments.protocol import Context, Verdict
from agentcli.exploration.judge import judge_message, read_verdict
from agentcli.records.types import Task
from hypothesis import given
from hypothesis import strategies as st

NAMES = ["calculator", "python", "search", "wikipedia", "papers", "facts", "units", "algebra", "cot"]
TASK = Task(id="t", world="quiz", split="train", kind="A")


def reply(process_ok: object = True, **scores: object) -> str:
    return json.dumps({"scores": dict.fromkeys(NAMES, 5) | scores, "process_ok": process_ok})


def test_a_verdict() -> None:
    verdict = read_verdict(reply(search=6.2, cot=10), NAMES)
    assert isinstance(verdict, Verdict)
    assert list(verdict.scores) == NAMES
    assert (verdict.scores["search"], verdict.scores["cot"], verdict.process_ok) == (6.2, 10.0, True)


@pytest.mark.parametrize("fence", ["```json\n{}\n```", "```\n{}```", "\n {} \n"])
def test_a_fence_of_code_is_taken_off(fence: str) -> None:
    assert isinstance(read_verdict(fence.replace("{}", reply(False)), NAMES), Verdict)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("I would take search.", "$"),
        (reply()[:-5], "$"),
        (reply(search=10.5), "$.scores"),
        (reply(search=-1), "$.scores"),
        (reply(search="8"), "$.scores"),
        (reply(search=None), "$.scores"),
        (reply(process_ok=1), "$.process_ok"),
        (reply(process_ok="true"), "$.process_ok"),
        (reply(teleport=4), "teleport"),
        (reply().replace('"search": 5, ', ""), "search"),
        (reply().replace("5", "NaN", 1), "$.scores"),
        (reply().replace('"process_ok"', '"ok"'), "$"),
        (reply()[:-1] + ', "why": "because"}', "why"),
        (reply() + reply(), "$"),
        ("[" * 100_000, "$"),
    ],
)
def test_anything_else_is_refused_with_its_place(text: str, words: str) -> None:
    problem = read_verdict(text, NAMES)
    assert isinstance(problem, str)
    assert words in problem
    assert "\n" not in problem


@given(st.text(max_size=60))
def test_no_text_raises(text: str) -> None:
    assert isinstance(read_verdict(text, NAMES), Verdict | str)


@given(st.text(max_size=80))
def test_the_query_is_the_last_line_whatever_it_holds(query: str) -> None:
    context = Context(task=TASK, instruction="Which?", observations=("nothing",))
    text = judge_message(context, {"search": "looks up"}, "hm", query).text
    last = text.rsplit("\nQuery: ", 1)[1]
    assert json.loads(last) == query


def test_the_judge_sees_what_was_done() -> None:
    context = Context(
        task=TASK, instruction="Which?", observations=("nothing", "Titan: 1.3e23 kg"), actions=("search[Titan]",)
    )
    text = judge_message(context, {"search": "looks up"}, "I need its mass", "mass of Titan").text
    for part in ("Which?", "search[Titan]", "Titan: 1.3e23 kg", "I need its mass", "- search: looks up", '"cot": 0'):
        assert part in text
