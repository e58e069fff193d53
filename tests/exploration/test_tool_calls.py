"""An endpoint that speaks tool_calls plays a world with tools, and one that misuses them does no harm."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcli.records.files import read_records
from agentcli.records.types import Outcome, Step, Tree, Validity
from chat_server import Answer, ChatServer, Script
from command_line import succeeded

PRESET = """
environment: {name: "quiz_world:QuizWorld", max_steps: 3, tasks: 3}
policy: {kind: openai, model: agent}
prompt: {style: chat, tools: native}
rollout: {leaves: 1, most_errored: 1, concurrency: 1}
"""


@pytest.fixture(autouse=True)
def _folder(empty_folder: Path) -> None:
    (empty_folder / "quiz.yaml").write_text(PRESET, encoding="utf-8")


def calls(*named: tuple[str, Any], content: str | None = None) -> Answer:
    """A completion with these tool calls, as servers give them: arguments are JSON in a string."""
    tool_calls = []
    for number, (name, arguments) in enumerate(named):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        tool_calls.append({"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": text}})
    message = {"role": "assistant", "content": content, "tool_calls": tool_calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return Answer({"id": "x", "choices": [choice], "usage": {"prompt_tokens": 11, "completion_tokens": 3}})


def played(script: Script) -> tuple[list[list[Step]], list[dict[str, Any]]]:
    """The steps of three questions, and what the server was asked."""
    with ChatServer(script) as server:
        words = ["rollout", "--preset", "./quiz.yaml", "-o", "x", "--set", "policy.endpoint.retries=0", "-q"]
        succeeded(*words, "--base-url", server.url)
    return [tree.steps for tree in read_records(Path("x/trees.jsonl"), Tree)], server.bodies


def peek_then_answer(body: dict[str, Any], before: int) -> Answer:
    """Looks first, then answers with the letter that the tool named."""
    last = body["messages"][-1]
    if last["role"] == "user":
        return calls(("peek", {"query": "the boxes"}), content="I look.")
    return calls(("answer", {"query": last["content"].removeprefix("It is ").removesuffix(".")}))


def test_a_server_that_calls_tools_solves_every_question() -> None:
    trees, bodies = played(peek_then_answer)
    assert [steps[-1].outcome for steps in trees] == [Outcome.SUCCESS] * 3
    assert [step.action for step in trees[0]] == ["peek[the boxes]", f"answer[{trees[0][1].action[7]}]"]  # type: ignore[index]
    assert [step.role == "tool" for step in trees[0]] == [False, True]
    assert trees[0][0].tools
    assert not trees[0][1].tools
    first, second = bodies[:2]
    assert [tool["function"]["name"] for tool in first["tools"]] == ["peek", "weigh", "answer"]
    assert second["tools"] == first["tools"]
    called, result = second["messages"][-2:]
    assert called["content"] == "I look."
    assert called["tool_calls"][0]["function"] == {"name": "peek", "arguments": '{"query":"the boxes"}'}
    assert result["role"] == "tool"
    assert result["tool_call_id"] == called["tool_calls"][0]["id"]


@pytest.mark.parametrize(
    "content", ["<think>I look.", "Does <think> close?", "<think>I look.</think>", "I </think> look."]
)
@pytest.mark.parametrize("query", ["the boxes", "<tool_call>", "</tool_call>", "</tool_call>\n<tool_call>", "<think>"])
def test_a_call_of_a_server_is_taken_whatever_is_said_before_and_asked(content: str, query: str) -> None:
    trees, _ = played([calls(("peek", {"query": query}), content=content)])
    assert {step.action for steps in trees for step in steps} == {f"peek[{query}]"}


HOSTILE = {
    "an unknown tool": calls(("rm", {"query": "x"})),
    "broken JSON": calls(("peek", '{"query": ')),
    "JSON that is no object": calls(("peek", "[1]")),
    "two calls": calls(("peek", {"query": "a"}), ("weigh", {"query": "b"})),
    "no call": calls(content="I would look."),
    "deep": calls(("peek", "[" * 100_000)),
    "a call inside an argument": calls(("peek", "<tool_call>{}</tool_call>")),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_server_that_misuses_them_is_malformed_and_goes_on(case: str) -> None:
    trees, bodies = played([HOSTILE[case]])
    assert {step.validity for steps in trees for step in steps} == {Validity.MALFORMED}
    assert [len(steps) for steps in trees] == [3] * 3
    assert bodies[1]["messages"][-1]["role"] == "user", "nothing was called, so nothing was returned"


def test_arguments_of_a_megabyte_are_an_errored_leaf_and_not_stored() -> None:
    trees, _ = played([calls(("peek", {"query": "a" * (2**20 + 1)}))])
    assert {steps[-1].outcome for steps in trees} == {Outcome.ERRORED}
    assert Path("x/trees.jsonl").stat().st_size < 100_000
