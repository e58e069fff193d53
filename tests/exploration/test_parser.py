"""A parser reads what the dialect cannot: only that, marked, and a parser that fails is an error of the step."""

from pathlib import Path

import pytest
from agentcli.records.files import read_records
from agentcli.records.types import Outcome, Tree, Validity
from chat_server import Answer, ChatServer, Script, completion
from command_line import agentcli, succeeded
from refusal import refused

PRESET = """
environment: {name: "quiz_world:QuizWorld", max_steps: 3}
policy: {kind: openai, model: agent}
prompt: {style: tools}
rollout: {leaves: 1, most_errored: 1, concurrency: 1}
"""
THOUGHTS = "I have weighed them. It is surely the last box, so my choice is (C)."
LETTER = "<think> weighed </think><answer> C </answer>"


@pytest.fixture(autouse=True)
def _folder(empty_folder: Path) -> None:
    (empty_folder / "quiz.yaml").write_text(PRESET, encoding="utf-8")


def evaluated(agent: str, parser: Script | None, *more: str) -> tuple[list[Tree], list[str]]:
    """The trees of an evaluation of 6 questions, and what the parser was asked."""
    words = ["eval", "--preset", "./quiz.yaml", "-o", "x", "--set", "policy.endpoint.retries=0", "-q", *more]
    with ChatServer(lambda *_: completion(agent)) as server, ChatServer(parser or []) as other:
        words += ["--base-url", server.url]
        if parser is not None:
            words += ["--set", "rollout.parser.kind=openai", "--set", "rollout.parser.model=small"]
            words += ["--set", f"rollout.parser.endpoint.base_url={other.url}"]
        succeeded(*words)
        asked = [body["messages"][-1]["content"] for body in other.bodies]
    (trees,) = Path("x/evaluation/trees").glob("*.jsonl")
    return list(read_records(trees, Tree)), asked


def test_without_a_parser_an_answer_without_its_tag_is_malformed() -> None:
    trees, _ = evaluated(THOUGHTS, None)
    assert {step.validity for tree in trees for step in tree.steps} == {Validity.MALFORMED}
    assert {step.notes.get("parsed") for tree in trees for step in tree.steps} == {None}


def test_a_parser_finds_the_letter() -> None:
    trees, asked = evaluated(THOUGHTS, lambda *_: completion(LETTER))
    steps = [tree.steps for tree in trees]
    assert all(len(each) == 1 for each in steps)
    first = steps[0][0]
    assert (first.action, first.response, first.validity, first.notes) == (
        "answer[C]",
        THOUGHTS,
        "valid",
        {"parsed": 1.0},
    )
    assert {each[0].outcome for each in steps} == {Outcome.SUCCESS, Outcome.FAILURE}
    assert len(asked) == len(trees)
    assert THOUGHTS in asked[0]
    assert "Which box is full" in asked[0]
    assert trees[0].ledger.generated_tokens == 6  # of both models


def test_of_a_conversation_the_parser_reads_all_that_the_agent_was_asked() -> None:
    _, windowed = evaluated(THOUGHTS, lambda *_: completion("none"))
    _, asked = evaluated(THOUGHTS, lambda *_: completion("none"), "--set", "prompt.style=chat", "--overwrite")
    assert len(asked) == len(windowed)
    for text in asked:
        assert "Which box is full" in text
        assert "<answer>" in text  # the form of answers, which is in the system message
    # The third question of an agent holds its first two answers.
    assert max(text.count(THOUGHTS) for text in asked) == 3


def test_what_can_be_read_is_not_asked_about() -> None:
    trees, asked = evaluated(LETTER, lambda *_: completion("none"))
    assert asked == []
    assert {step.notes.get("parsed") for tree in trees for step in tree.steps} == {None}


def test_where_the_parser_finds_nothing_the_step_stays_malformed() -> None:
    trees, asked = evaluated("Hm.", lambda *_: completion("none"))
    assert {step.validity for tree in trees for step in tree.steps} == {Validity.MALFORMED}
    assert len(asked) == sum(len(tree.steps) for tree in trees)


def test_a_parser_that_breaks_is_an_error_with_its_cause() -> None:
    broken = Answer({"error": "no"}, status=400)
    (first, *trees), _ = evaluated(THOUGHTS, lambda _, before: broken if before else completion(LETTER))
    assert first.steps[0].action == "answer[C]"
    ends = [tree.steps[-1] for tree in trees]
    assert {end.outcome for end in ends} == {Outcome.ERRORED}
    assert all("rollout.parser" in str(end.error) for end in ends)


def test_a_parser_that_breaks_once_takes_no_sibling_with_it() -> None:
    broken = Answer({"error": "no"}, status=400)
    more = ("--samples", "4", "--tasks", "1")
    ((tree,), _) = evaluated(THOUGHTS, lambda _, before: broken if before == 1 else completion(LETTER), *more)
    outcomes = [step.outcome for step in tree.steps]
    assert len(outcomes) == 4
    assert outcomes.count(Outcome.ERRORED) == 1


def test_a_parser_without_a_server_is_refused() -> None:
    words = ("eval", "--preset", "./quiz.yaml", "--base-url", "http://127.0.0.1:9/v1", "-o", "x", "-q")
    refused(agentcli(*words, "--set", "rollout.parser.kind=openai"), 2, "rollout.parser.endpoint.base_url", "--set")
