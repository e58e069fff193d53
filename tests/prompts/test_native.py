"""Calls as models are tuned to write them: what is read, what is refused, whatever a model or a server says."""

import json
from typing import Any

import pytest
from agentcli.environments.protocol import Context
from agentcli.prompts.native import Native, split_calls
from agentcli.prompts.protocol import Answer, Moment
from agentcli.prompts.registry import make_dialect
from agentcli.records.settings import EnvironmentSettings, PromptSettings
from hypothesis import given
from hypothesis import strategies as st
from policy_requests import TASK
from quiz_world import QuizWorld
from refusal import refused
from small_world import SmallWorld

SETTINGS = PromptSettings(style="chat", tools="native")
WORLD = QuizWorld(EnvironmentSettings())
FORM = Native(SETTINGS, WORLD)


def moment(*actions: str) -> Moment:
    observations = ("Nothing is known.", *("It is A." for _ in actions))
    context = Context(task=TASK, instruction="Which box?", observations=observations, actions=actions)
    return Moment(copies=(context,))


def hermes(name: Any, arguments: Any, thought: str = "") -> str:
    call = json.dumps({"name": name, "arguments": arguments})
    return f"{thought}<tool_call>\n{call}\n</tool_call>"


@pytest.mark.parametrize(
    "response",
    [
        hermes("peek", {"query": "a box"}, "I look. "),
        hermes("peek", {"query": "a box"}, "<think>\nI look.\n</think>\n\n"),
        'I look. <tool_call>{"name": "peek", "arguments": {"query": " a box "}}</tool_call>',
    ],
)
def test_a_call_of_hermes_is_read_with_its_thought(response: str) -> None:
    assert FORM.read(response, moment()) == Answer("think", "I look.", {1: "peek[a box]"})


LLAMA = '{"name": "answer", "parameters": {"query": "B"}}'


@pytest.mark.parametrize(
    ("before", "thought"),
    [("", ""), ("<|python_tag|>", ""), ("<think>It is B.</think>\n", "It is B."), (" \n", "")],
)
def test_a_call_of_llama_is_read(before: str, thought: str) -> None:
    assert FORM.read(before + LLAMA, moment()) == Answer("think", thought, {1: "answer[B]"})


@pytest.mark.parametrize(
    ("response", "calls"),
    [
        (f"<think>I could say {hermes('peek', {'query': 'a'})}.</think>{hermes('peek', {'query': 'b'})}", 1),
        (f"<think>I could say {hermes('peek', {'query': 'a'})}.</think>But I do not.", 0),
        (f"<think>I could say {hermes('peek', {'query': 'a'})}", 0),
    ],
    ids=["another one follows", "none follows", "the thought never ends"],
)
def test_a_call_that_is_only_thought_of_is_none(response: str, calls: int) -> None:
    assert len(split_calls(response)[1]) == calls


@pytest.mark.parametrize("tag", ["<tool_call>", "</tool_call>", "<think>", "</think>", "<think></think>"])
@pytest.mark.parametrize("thought", ["", "I look. ", "<think>I look.</think>"])
def test_a_query_may_hold_a_tag(tag: str, thought: str) -> None:
    response = hermes("peek", {"query": f"what {tag} means"}, thought)
    assert FORM.read(response, moment()).actions == {1: f"peek[what {tag} means]"}


@pytest.mark.parametrize("text", ["<tool_call>", "</tool_call>", "<think>", "</think>", "{"])
def test_a_megabyte_of_tags_is_split_at_once(text: str) -> None:
    """A search from each opening tag for its end would take minutes, in which every other trajectory waits."""
    thought, calls = split_calls(text * (2**20 // len(text)))
    assert (len(thought) < 2**21, len(calls) < 2) == (True, True)


def test_a_long_query_is_said_to_be_long() -> None:
    answer = FORM.read(hermes("peek", {"query": "a" * 5000}), moment())
    assert answer.problem == "query is longer than 4000 characters"


def test_a_tool_that_no_call_can_name_is_refused() -> None:
    class Hyphen(QuizWorld):
        tools = {"web-search": "Searches."}  # type: ignore[assignment]  # noqa: RUF012

    refused(lambda: Native(SETTINGS, Hyphen(EnvironmentSettings())), names=("web-search",), remedy="prompt.tools=text")


PEEK = hermes("peek", {"query": "a"})
DEEP = "<tool_call>" + '{"name": ' * 100_000 + "</tool_call>"
HOSTILE = {
    "none": "I peek at the boxes.",
    "empty": "",
    "two": PEEK + PEEK,
    "unknown": hermes("rm", {"query": "a"}),
    "not a name": hermes(["peek"], {"query": "a"}),
    "torn": PEEK.replace("}", "", 1),
    "not closed": PEEK.removesuffix("</tool_call>"),
    "no arguments": hermes("peek", {}),
    "arguments are a text": hermes("peek", "a"),
    "another argument": hermes("peek", {"question": "a"}),
    "more arguments": hermes("peek", {"query": "a", "shell": "b"}),
    "a number": hermes("peek", {"query": 1}),
    "blank": hermes("peek", {"query": " \n"}),
    "deep": DEEP,
    "NaN": "<tool_call>NaN</tool_call>",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_call_is_malformed_and_says_why(case: str) -> None:
    answer = FORM.read(HOSTILE[case], moment())
    assert answer.problem
    assert not answer.actions
    assert len(answer.problem) < 300


def test_an_argument_of_a_megabyte_is_cut_or_refused_and_costs_no_time() -> None:
    answer = FORM.read(hermes("peek", {"query": "a" * 2**20}), moment())
    assert answer.problem or len(answer.actions[1]) < 10_000


@given(st.text(max_size=200))
def test_reading_never_raises(response: str) -> None:
    FORM.read(response, moment())
    FORM.read(f"<tool_call>{response}</tool_call>", moment())


WORDS = st.text("abc [](){}\"'\\é", min_size=1, max_size=20).map(lambda text: " ".join(text.split()))


@given(thought=WORDS, query=WORDS)
def test_what_is_written_is_read_back(thought: str, query: str) -> None:
    if not query or "{" in thought:
        return
    action = f"peek[{query}]"
    response = FORM.write(Answer("think", thought, {1: action}), moment())
    assert FORM.read(response, moment()) == Answer("think", thought, {1: action})
    assert len(split_calls(response)[1]) == 1
    assert "\\u" not in response, "a model writes an é as it is"


def test_the_first_message_has_the_schemas_and_results_are_of_the_tool() -> None:
    dialect = make_dialect(SETTINGS, WORLD)
    first = dialect.ask(moment())
    names = [one["function"]["name"] for one in json.loads(first.tools)]
    assert names == [*QuizWorld.tools, "answer"]
    assert "[" not in first.text
    second = dialect.ask(moment("peek[a]"))
    assert (second.role, second.text, second.tools) == ("tool", "It is A.", "")
    assert dialect.ask(moment("")).role == "user", "an unreadable response called nothing"


def test_native_needs_chat_and_a_world_with_tools() -> None:
    refused(
        lambda: make_dialect(PromptSettings(tools="native"), WORLD), names="prompt.tools", remedy="prompt.style=chat"
    )
    refused(lambda: make_dialect(SETTINGS, SmallWorld()), names="prompt.tools", remedy="")
