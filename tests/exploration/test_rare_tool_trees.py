"""Trees whose tools a judge has chosen: what is run, what is noted, what becomes of a judge that fails."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcli.exploration.judge import JudgeSettings
from agentcli.exploration.rare_tool import RareToolRollout
from agentcli.records.files import read_records
from agentcli.records.trees import paths, validate_tree
from agentcli.records.types import Credit, Outcome, Step, Tree
from chat_server import Answer, ChatServer, completion
from command_line import agentcli, succeeded
from refusal import refused

PRESET = """
environment: {name: "quiz_world:QuizWorld", max_steps: 5}
policy: {kind: expert}
rollout: {method: rare-tool, leaves: 1, most_errored: 1, judge: {kind: tool-judge}}
credit: {method: rare-tool}
"""
ROLLOUT = ("rollout", "--preset", "./quiz.yaml", "-q")
SCORES = {"peek": 9, "weigh": 7, "cot": 1}


@pytest.fixture(autouse=True)
def _folder(empty_folder: Path) -> None:
    (empty_folder / "quiz.yaml").write_text(PRESET, encoding="utf-8")


def roll(out: str, *words: str, code: int = 0) -> list[Tree]:
    done = agentcli(*ROLLOUT, *words, "-o", out)
    assert done.code == code, done
    return list(read_records(Path(out, "trees.jsonl"), Tree))


def actions(tree: Tree) -> list[list[str | None]]:
    return [[step.action for step in steps] for steps in paths(tree)]


def test_the_rarest_viable_tool_is_run_whatever_the_generator_named() -> None:
    for tree in roll("x"):
        validate_tree(tree)
        first, last = tree.steps
        assert first.action == "weigh[the boxes]"
        assert "<tool> peek </tool>" in first.response
        assert first.next_observation.startswith("It is ")
        assert {name: first.notes[name] for name in ("tool", "query", "chosen", "best", "process_ok")} == {
            "tool": "weigh",
            "query": "the boxes",
            "chosen": 7.0,
            "best": 9.0,
            "process_ok": 1.0,
        }
        assert [first.notes[f"score_{name}"] for name in ("peek", "weigh", "cot")] == [9.0, 7.0, 2.0]
        assert first.notes["trained"] == first.response.replace("peek", "weigh")
        # An answer gives no query: it is chain of thought.
        assert (last.outcome, last.notes["tool"], last.notes["chosen"], last.notes["best"]) == (
            Outcome.SUCCESS,
            "cot",
            9.5,
            9.5,
        )
        assert last.notes["trained"] == last.response


def test_greedy_takes_the_best_and_random_any_viable_one() -> None:
    assert {str(tree.steps[0].action) for tree in roll("greedy", "--select", "greedy")} == {"peek[the boxes]"}
    drawn = {str(tree.steps[0].action) for tree in roll("random", "--select", "random", "--leaves", "3")}
    assert drawn == {"peek[the boxes]", "weigh[the boxes]"}


def test_nothing_viable_is_thinking() -> None:
    for tree in roll("x", "--threshold", "9.5"):
        assert [step.action for step in tree.steps] == ["cot[the boxes]"] * 5
        assert tree.steps[-1].outcome is Outcome.TRUNCATED


def test_one_seed_means_the_same_bytes_at_any_concurrency_and_after_an_interruption() -> None:
    words = ("--policy", "random", "--select", "random", "--leaves", "3")
    roll("one", *words, "--concurrency", "1")
    whole = Path("one/trees.jsonl").read_bytes()
    roll("four", *words, "--concurrency", "4")
    assert Path("four/trees.jsonl").read_bytes() == whole
    Path("four/trees.jsonl").write_bytes(whole[:-1500])
    roll("four", *words, "--resume")
    assert Path("four/trees.jsonl").read_bytes() == whole


def test_credit_reads_the_notes() -> None:
    trees = roll("x", "--policy", "random", "--leaves", "4")
    succeeded("assign-credit", "x", "--set", "credit.rho=.25", "-q")
    credits = list(read_records(Path("x/credit/rare-tool.jsonl"), Credit))
    for tree, credit in zip(trees, credits, strict=True):
        for step, row in zip(tree.steps, credit.steps, strict=True):
            gain = (float(step.notes["best"]) - float(step.notes["chosen"])) / 10
            assert row.advantage == pytest.approx(0.25 * gain + 0.75 * float(step.notes["process_ok"]))
    succeeded("assign-credit", "x", "--explain", "best", "-q")


def server(*replies: str | Answer) -> ChatServer:
    return ChatServer([completion(reply) if isinstance(reply, str) else reply for reply in replies])


def asking(served: ChatServer, *more: str) -> tuple[str, ...]:
    judge = {
        "kind": "openai",
        "model": "served",
        "max_tokens": 64,
        "endpoint": {"base_url": served.url, "retries": 0, "request_seconds": 1.0},
    }
    return ("--set", f"rollout.judge={json.dumps(judge)}", "--tasks", "1", *more)


def verdict(process_ok: Any = True, **scores: Any) -> str:
    return json.dumps({"scores": SCORES | scores, "process_ok": process_ok})


def last_step(tree: Tree) -> Step:
    (steps,) = paths(tree)
    return steps[-1]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (verdict(peek=11), "$.scores"),
        (verdict(process_ok="yes"), "$.process_ok"),
        (verdict()[:-3], "$"),
        (verdict().replace('"weigh": 7, ', ""), "no score of weigh"),
        (verdict(fly=3), "fly"),
        ("I would weigh.", "$"),
    ],
    ids=["out of range", "no truth value", "torn", "one missing", "one too many", "no JSON"],
)
def test_a_judge_that_stays_unreadable_is_an_errored_step_with_its_cause(reply: str, words: str) -> None:
    with server(reply) as served:
        (tree,) = roll("x", *asking(served))
        assert len(served.bodies) == 3
    end = last_step(tree)
    assert end.outcome is Outcome.ERRORED
    assert end.error is not None
    assert "rollout.judge" in end.error
    assert words in end.error
    assert not end.notes


def test_a_judge_that_does_not_answer_is_an_errored_step_with_its_cause() -> None:
    # A server that has answered nothing at all ends the command instead.
    with server(verdict(), Answer(status=500)) as served:
        (tree,) = roll("x", *asking(served))
    end = last_step(tree)
    assert end.outcome is Outcome.ERRORED
    assert end.error is not None
    assert "rollout.judge" in end.error
    assert "500" in end.error


def test_an_unreadable_verdict_is_asked_for_again() -> None:
    with server("hm", verdict(peek=11), verdict(), verdict(cot=9.5)) as served:
        (tree,) = roll("x", *asking(served))
        assert len(served.bodies) == 4
    assert tree.steps[0].action == "weigh[the boxes]"
    assert last_step(tree).outcome is Outcome.SUCCESS


def test_the_judge_is_told_why_it_is_asked_again() -> None:
    with server(verdict(peek=11), verdict()) as served:
        roll("x", *asking(served))
        first, again = (body["messages"][0]["content"] for body in served.bodies[:2])
    assert "refused" not in first
    assert "refused" in again
    assert "scores" in again.partition("refused")[2]
    assert first.rpartition("Query:")[2] == again.rpartition("Query:")[2]


def test_an_unusable_reply_is_not_kept() -> None:
    """Else one bad reply of a greedy judge would be its reply for ever."""
    cache = ("--set", "rollout.judge.cache=kept")
    with server(*["hm"] * 3) as served:
        (tree,) = roll("x", *asking(served, *cache))
        assert last_step(tree).outcome is Outcome.ERRORED
        assert len(served.bodies) == 3
    assert not list(Path("kept").rglob("*.json"))
    with server("hm", verdict()) as served:
        (tree,) = roll("y", *asking(served, *cache))
        assert last_step(tree).outcome is Outcome.SUCCESS


@pytest.mark.parametrize("kind", ["tool-judge", "plausible"])
def test_a_judge_without_a_model_has_no_cache(kind: str) -> None:
    """It reads the world's options too, which a cache does not know."""
    settings = RareToolRollout(judge=JudgeSettings(kind=kind, cache="kept"))
    refused(settings.check, names=("rollout.judge.cache", kind), remedy="leave it out")


def test_a_kept_verdict_is_not_asked_for_again() -> None:
    with server(verdict()) as served:
        first = roll("one", *asking(served, "--set", "rollout.judge.cache=kept"))
        asked = len(served.bodies)
        second = roll("two", *asking(served, "--set", "rollout.judge.cache=kept"))
        assert (asked, len(served.bodies)) == (2, 2)
        roll("three", *asking(served, "--set", "rollout.judge.cache=kept", "--set", "rollout.judge.max_tokens=65"))
        assert len(served.bodies) == 4
        assert first == second
        files = sorted(Path("kept").rglob("*.json"))
        assert len(files) == 4
        for file in files:
            file.write_bytes(b"{")
        refused(agentcli(*ROLLOUT, *asking(served, "--set", "rollout.judge.cache=kept"), "-o", "four"), 3, "kept")


def test_a_judge_that_was_not_named_is_the_world_s_own_and_is_announced() -> None:
    named = roll("named")
    Path("default.yaml").write_text(PRESET.replace(", judge: {kind: tool-judge}", ""), encoding="utf-8")
    done = succeeded("rollout", "--preset", "./default.yaml", "-o", "default")
    (line,) = [line for line in done.stderr.splitlines() if "rollout.judge.kind" in line]
    assert "tool-judge" in line
    assert list(read_records(Path("default/trees.jsonl"), Tree)) == named


def test_no_tools_are_refused_by_the_plan() -> None:
    refused(agentcli(*ROLLOUT, "--env", "toy_world:ToyWorld", "-o", "x"), 2, "rollout.method", "--env")
    assert not Path("x").exists()


def test_a_conversation_is_refused_because_it_would_name_another_tool_than_was_run() -> None:
    done = agentcli(*ROLLOUT, "--set", "prompt.style=chat", "-o", "x")
    assert done.code == 2
    assert "rare-tool" in done.stderr
    assert "prompt.style chat" in done.stderr


def test_a_judge_that_fails_once_takes_no_sibling_with_it() -> None:
    with server(verdict(), Answer({"error": "no"}, status=400), *[verdict()] * 40) as served:
        (tree,) = roll("x", *asking(served, "--leaves", "3", "--concurrency", "1"))
    ends = [trajectory[-1].outcome for trajectory in paths(tree)]
    assert len(ends) == 3
    assert ends.count(Outcome.ERRORED) == 1
