"""A judge of answers: its verdict is the outcome, the world's reward stays, and a judge that breaks is an errored leaf."""

import json
from pathlib import Path

import pytest
from agentcli.exploration.answer_judge import ATTEMPTS, Judgement, read_judgement
from agentcli.records.files import read_records
from agentcli.records.types import Outcome, Tree
from chat_server import Answer, ChatServer, Script, completion
from command_line import agentcli, succeeded
from refusal import refused

PRESET = """
environment: {name: search_qa, split: test, max_steps: 2, options: {documents: 40, reward: f1, sizes: {test: 3}}}
policy: {kind: openai, model: agent}
rollout: {leaves: 1, most_errored: 1, concurrency: 1}
evaluation: {trees: all}
"""
ANSWER = "<think> I am sure. </think><answer> it is  Nobody </answer>"
SEARCH = "<think> I look. </think><search> Nobody </search>"
RIGHT = json.dumps({"rationale": "The same.", "judgement": "Correct"})
WRONG = json.dumps({"rationale": "Another.", "judgement": "Incorrect"})
JUDGE = ("--set", "rollout.answer_judge.kind=openai", "--set", "rollout.answer_judge.model=judge")


@pytest.fixture(autouse=True)
def _folder(empty_folder: Path) -> None:
    (empty_folder / "qa.yaml").write_text(PRESET, encoding="utf-8")


def judged(script: Script, agent: str = ANSWER, *words: str) -> tuple[list[Tree], list[str]]:
    """The trees of an evaluation of three questions, and what the judge was asked."""
    with ChatServer(lambda *_: completion(agent)) as server, ChatServer(script) as other:
        line = ["eval", "--preset", "./qa.yaml", "-o", "x", "--set", "policy.endpoint.retries=0", "-q"]
        line += ["--base-url", server.url, *JUDGE, "--set", f"rollout.answer_judge.endpoint.base_url={other.url}"]
        succeeded(*line, "--set", "rollout.answer_judge.endpoint.retries=0", *words)
        asked = [body["messages"][-1]["content"] for body in other.bodies]
    (trees,) = Path("x/evaluation/trees").glob("*.jsonl")
    return list(read_records(trees, Tree)), asked


@pytest.mark.parametrize(("reply", "outcome"), [(RIGHT, Outcome.SUCCESS), (WRONG, Outcome.FAILURE)])
def test_the_verdict_is_the_outcome_and_the_reward_stays(reply: str, outcome: Outcome) -> None:
    trees, asked = judged(lambda *_: completion(reply))
    ends = [tree.steps[-1] for tree in trees]
    assert [(end.outcome, end.reward) for end in ends] == [(outcome, 0.0)] * 3
    assert {end.notes["judgement"] for end in ends} == {json.loads(reply)["judgement"]}
    assert len(asked) == 3
    question = trees[0].instruction.splitlines()[0]
    assert f"Question: {question}\n" in asked[0]
    assert "Predicted Answer: it is Nobody\n" in asked[0]
    assert trees[0].ledger.generated_tokens == 6  # of both models


def test_an_episode_without_an_answer_is_not_judged() -> None:
    trees, asked = judged(lambda *_: completion(RIGHT), SEARCH)
    assert {tree.steps[-1].outcome for tree in trees} == {Outcome.TRUNCATED}
    assert asked == []


def test_an_unreadable_verdict_is_asked_for_again_and_then_an_error() -> None:
    trees, asked = judged(lambda *_: completion("It is correct."))
    assert len(asked) == 3 * ATTEMPTS
    assert "was refused" not in asked[0]
    assert "was refused" in asked[1]
    ends = [tree.steps[-1] for tree in trees]
    assert {end.outcome for end in ends} == {Outcome.ERRORED}
    assert all("rollout.answer_judge" in str(end.error) for end in ends)
    trees, asked = judged(lambda *_: completion(RIGHT), ANSWER, "--resume")
    assert {tree.steps[-1].outcome for tree in trees} == {Outcome.SUCCESS}


def test_a_judge_that_breaks_is_an_errored_leaf_and_is_asked_again_on_resume() -> None:
    broken = Answer({"error": "no"}, status=400)
    trees, asked = judged(lambda _, before: broken if before == 1 else completion(RIGHT))
    ends = [tree.steps[-1] for tree in trees]
    assert [end.outcome for end in ends] == [Outcome.SUCCESS, Outcome.ERRORED, Outcome.SUCCESS]
    assert "rollout.answer_judge" in str(ends[1].error)
    trees, asked = judged(lambda *_: completion(WRONG), ANSWER, "--resume")
    assert [tree.steps[-1].outcome for tree in trees] == [Outcome.SUCCESS, Outcome.FAILURE, Outcome.SUCCESS]
    assert len(asked) == 1


def test_it_is_refused_where_there_is_nothing_to_judge() -> None:
    words = ["eval", "--preset", "./qa.yaml", "--base-url", "http://127.0.0.1:9/v1", "-o", "x", "-q", *JUDGE]
    refused(agentcli(*words), 2, "rollout.answer_judge.endpoint.base_url", "--set")
    words += ["--set", "rollout.answer_judge.endpoint.base_url=http://127.0.0.1:9/v1"]
    refused(agentcli(*words, "--env", "sokoban", "--split", "test"), 2, ["rollout.answer_judge", "sokoban"])
    copies = ("--set", "rollout.method=dpepo", "--set", "prompt.style=compact")
    refused(agentcli("rollout", *words[1:], *copies), 2, ["rollout.answer_judge", "dpepo"])
    # Nobody listens at port 9.
    ended = agentcli(*words)
    assert ended.code == 4, ended


@pytest.mark.parametrize("text", [RIGHT, f"  {RIGHT}\n", f"```json\n{RIGHT}\n```", f"```\n{RIGHT}\n```"])
def test_a_verdict_is_read(text: str) -> None:
    assert read_judgement(text) == Judgement(rationale="The same.", judgement="Correct")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Correct",
        f"Sure! {RIGHT}",
        RIGHT.replace("Correct", "correct"),
        RIGHT.replace("Correct", "Incorrect, Correct"),
        '{"judgement": "Correct"}',
        '{"rationale": "x", "judgement": "Correct", "score": 1}',
        "[" * 100_000,
        "\x1b[31m",
    ],
)
def test_anything_else_is_not(text: str) -> None:
    problem = read_judgement(text)
    assert isinstance(problem, str)
    assert problem.isprintable()
