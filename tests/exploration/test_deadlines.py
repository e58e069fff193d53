"""A tree whose time is up: what is kept of it, and what it says."""

import asyncio
import json
from pathlib import Path

import pytest
from agentcli.policies.protocol import Policy, Reply, Request
from agentcli.prompts.tagged import write_tagged
from agentcli.records.settings import AdvisorSettings
from agentcli.records.trees import paths
from agentcli.records.types import Outcome
from chat_server import Answer, ChatServer, completion
from command_line import agentcli
from growths import GROWTHS, growths
from scripted import SeededPolicy
from verdicts import Asked, Judge
from word_trees import grow_word

QUIZ = """
environment: {name: "quiz_world:QuizWorld", split: test, max_steps: 2, processes: 1}
policy: {kind: openai, model: agent, endpoint: {retries: 0}}
rollout: {most_errored: 1}
"""
ANSWERED = "<think> sure </think><answer> A </answer>"


class Stuck(SeededPolicy):
    """Never answers in the third trajectory, and in no trajectory after `patience` answers."""

    def __init__(self, patience: int = 10**9) -> None:
        super().__init__(("win",))
        self.rows: list[int] = []
        self.patience = patience

    async def respond(self, request: Request) -> Reply:
        if request.episode_seed not in self.rows:
            self.rows.append(request.episode_seed)
        if self.rows.index(request.episode_seed) == 2 and request.moment.copies[0].actions:
            await asyncio.Event().wait()
        self.patience -= 1
        if self.patience < 0:
            await asyncio.Event().wait()
        action = "a" if self.rows.index(request.episode_seed) == 2 else "win"
        return Reply(text=write_tagged("think", "go", action), token_ids=(1,), logprobs=(-1.0,))


@pytest.mark.parametrize(
    ("minimum", "outcomes"),
    [(2, [Outcome.SUCCESS, Outcome.SUCCESS]), (3, [Outcome.SUCCESS, Outcome.SUCCESS, Outcome.ERRORED])],
)
def test_the_deadline_keeps_what_is_enough(minimum: int, outcomes: list[Outcome]) -> None:
    tree = grow_word("chain", Stuck(), leaves=3, deadline_seconds=1.0, minimum_leaves=minimum)
    assert [step.outcome for step in tree.steps] == outcomes
    assert tree.ledger.leaves == len(outcomes)
    assert tree.ledger.steps == 3, "the step that the deadline cut off was executed"
    assert tree.ledger.generated_tokens == 3
    why = "the tree was not finished within 1 s (rollout.deadline_seconds)"
    assert [step.error for step in tree.steps] == [None, None, why][: len(outcomes)]


def test_a_tree_of_too_few_leaves_is_errored_even_where_the_others_had_not_begun() -> None:
    tree = grow_word("chain", Stuck(patience=2), leaves=3, deadline_seconds=1.0, minimum_leaves=3)
    assert [step.outcome for step in tree.steps] == [Outcome.SUCCESS, Outcome.SUCCESS, Outcome.ERRORED]
    assert len(grow_word("chain", Stuck(patience=2), leaves=3, deadline_seconds=1.0, minimum_leaves=2).steps) == 2


def test_where_all_leaves_are_needed_those_without_a_step_are_errored_too() -> None:
    tree = grow_word("chain", Stuck(patience=1), leaves=3, deadline_seconds=1.0, minimum_leaves=3)
    assert [step.outcome for step in tree.steps] == [Outcome.SUCCESS, Outcome.ERRORED, Outcome.ERRORED]


def test_no_sample_of_an_evaluation_is_dropped(tmp_path: Path) -> None:
    """Slow ones may be the wrong ones: without them success would be too high, and pass@k had too few."""
    preset = tmp_path / "quiz.yaml"
    preset.write_text(QUIZ, encoding="utf-8")

    def slow(body: object, before: int) -> Answer:
        return completion(ANSWERED) if before < 2 else Answer({}, drip=True)

    with ChatServer(slow) as server:
        words = [
            "pass-at-k",
            "--n",
            "4",
            "--k",
            "4",
            "--preset",
            str(preset),
            "-o",
            str(tmp_path / "x"),
            "--tasks",
            "1",
        ]
        done = agentcli(*words, "--base-url", server.url, "-q", "--set", "rollout.deadline_seconds=1", "--json")
    assert done.code == 0, done
    (found,) = (tmp_path / "x/evaluation").glob("*.json")
    summary = json.loads(found.read_text(encoding="utf-8"))
    assert summary["outcomes"] == {"success": 2, "failure": 0, "truncated": 0, "errored": 2}
    assert summary["pass_at_k"]["4"]["rate"] == 1.0
    assert summary["pass_at_k"]["1"]["rate"] == 0.5


def judged(judge: Judge, minimum: int, policy: Policy | None = None) -> list[Outcome | None]:
    """What three answers came to that the world itself calls wrong."""
    rollout = {"answer_judge": AdvisorSettings(kind="openai"), "deadline_seconds": 4.0, "minimum_leaves": minimum}
    policy = policy or SeededPolicy(("die",))
    models = {"answer_judge": judge}
    tree = grow_word("chain", policy, world=Asked(), models=models, leaves=3, **rollout)
    return [path[-1].outcome for path in paths(tree)]


def test_an_answer_without_a_verdict_at_the_deadline_is_not_finished() -> None:
    assert judged(Judge(), 3) == [Outcome.SUCCESS] * 3
    assert judged(Judge(slow=[3]), 2) == [Outcome.SUCCESS] * 2
    assert sorted(map(str, judged(Judge(slow=[3]), 3))) == ["errored", "success", "success"]


def test_an_answer_whose_judge_broke_is_none_of_those_that_are_needed() -> None:
    """Two of three end, and one of these is no sample: nothing is dropped."""
    assert sorted(map(str, judged(Judge(broken=[1]), 2, Stuck()))) == ["errored", "errored", "success"]


@growths
def test_a_deadline_before_the_first_step_is_an_errored_tree(growth: str) -> None:
    rollout = {**GROWTHS[growth], "roots": 2, "deadline_seconds": 0.05}
    tree = grow_word(policy=Stuck(patience=0), **rollout)
    assert [step.outcome for step in tree.steps] == [Outcome.ERRORED]
    assert tree.method == GROWTHS[growth]["method"]


def test_a_deadline_that_is_kept_changes_nothing() -> None:
    bounded, free = (grow_word("carl", SeededPolicy(("a", "win")), deadline_seconds=s) for s in (60.0, None))
    assert bounded == free
