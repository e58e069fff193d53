"""Rollouts through the command line with a served model: trees, the ledger, errored leaves that --resume redoes, exit codes."""

from pathlib import Path
from typing import Any

import pytest
from agentcli.cli.app import build
from agentcli.prompts.tagged import write_tagged
from agentcli.records.files import read_json, read_records
from agentcli.records.types import Episode, Manifest, Outcome, Tree
from chat_server import Answer, ChatServer, completion
from typer.testing import CliRunner

SECRET = "sk-a/very-secret-key"
SETTINGS = """
environment: {name: "toy_world:ToyWorld", max_steps: 6, options: {tasks: 4, length: 3}}
prompt: {style: compact}
policy: {model: m, endpoint: {retries: 0, request_seconds: 20}}
rollout: {leaves: 2, concurrency: 2}
demos: {count: 2}
"""
EAST, KEY = write_tagged("think", "on", "go east"), write_tagged("explore", "a key", "take key")


@pytest.fixture(autouse=True)
def _in_folder(empty_folder: Path) -> None:
    Path("toy.yaml").write_text(SETTINGS)


def agentcli(*words: str) -> Any:
    return CliRunner().invoke(build(), [words[0], "-c", "toy.yaml", *words[1:]])


def play(body: dict[str, Any], before: int) -> Answer:
    """Plays the corridor well; a response belongs to its prompt."""
    return completion(KEY if "Here is a key" in body["messages"][0]["content"] else EAST)


def breaks_in_room_1_of(length: int) -> Any:
    def script(body: dict[str, Any], before: int) -> Answer:
        prompt = body["messages"][0]["content"]
        return (
            Answer(status=500) if f"Reach room {length - 1}." in prompt and "room 1." in prompt else play(body, before)
        )

    return script


def test_an_errored_leaf_is_redone_by_resume() -> None:
    words = ("rollout", "--policy", "openai", "-o", "x", "--base-url")
    with ChatServer(breaks_in_room_1_of(5)) as server:
        first = agentcli(*words, server.url)
    assert first.exit_code == 1, "two of eight leaves are too many"
    assert "--resume" in first.output
    trees = list(read_records(Path("x/trees.jsonl"), Tree))
    errored = [step for tree in trees for step in tree.steps if step.outcome is Outcome.ERRORED]
    assert {tree.task.id for tree in trees if any(step.error for step in tree.steps)} == {"train/2"}
    assert len(errored) == 2
    assert errored[0].error == f"{server.url}/chat/completions: answered 500"
    with ChatServer(play) as healed:
        again = agentcli(*words, healed.url, "--resume")
        assert again.exit_code == 0, again.output
        asked = len(healed.bodies)
        whole = agentcli("rollout", "--policy", "openai", "-o", "y", "--base-url", healed.url)
    assert whole.exit_code == 0, whole.output
    assert asked == 2 * 4, "only the tree that was owed: two leaves of four steps"
    assert Path("x/trees.jsonl").read_bytes() == Path("y/trees.jsonl").read_bytes()
    ledger = read_json(Path("y/manifest.json"), Manifest).stages["rollout"].ledger
    assert ledger is not None
    assert ledger.generated_tokens == 3 * ledger.steps
    assert ledger.prompt_tokens == 11 * ledger.steps


def test_tokens_are_counted_where_there_are_no_ids() -> None:
    with ChatServer([completion(EAST, token_ids=None, logprobs=None)]) as server:
        result = agentcli("rollout", "--policy", "openai", "-o", "x", "--base-url", server.url)
    assert result.exit_code == 0, result.output
    trees = list(read_records(Path("x/trees.jsonl"), Tree))
    assert not any(step.token_ids or step.logprobs for tree in trees for step in tree.steps)
    assert [tree.ledger.generated_tokens for tree in trees] == [3 * tree.ledger.steps for tree in trees]


def test_an_endpoint_that_is_down_leaves_nothing_and_ends_with_4() -> None:
    with ChatServer([]) as server:
        pass
    result = agentcli("rollout", "--policy", "openai", "-o", "x", "--base-url", server.url, "-q")
    assert result.exit_code == 4
    assert result.stderr.count("\n") == 1
    assert f"error: {server.url}/" in result.stderr
    assert "--base-url" in result.stderr
    assert not Path("x/trees.jsonl").exists()


def test_an_endpoint_that_dies_ends_with_4_and_what_is_owed_is_redone() -> None:
    Path("toy.yaml").write_text(SETTINGS.replace("tasks: 4", "tasks: 16"))
    words = ("rollout", "--policy", "openai", "-o", "x", "--base-url")
    with ChatServer(lambda body, before: play(body, before) if before < 40 else Answer(status=503)) as server:
        result = agentcli(*words, server.url)
    assert result.exit_code == 4, result.output
    assert all(part in result.stderr for part in ("16 requests", "--resume"))
    with ChatServer(play) as healed:
        assert agentcli(*words, healed.url, "--resume").exit_code == 0
        assert agentcli("rollout", "--policy", "openai", "-o", "y", "--base-url", healed.url).exit_code == 0
    assert Path("x/trees.jsonl").read_bytes() == Path("y/trees.jsonl").read_bytes()


def test_demonstrations_of_a_served_model_are_recorded() -> None:
    with ChatServer(play) as server:
        result = agentcli("demos", "--policy", "openai", "-o", "x", "--base-url", server.url)
    assert result.exit_code == 0, result.output
    trees = list(read_records(Path("x/trees.jsonl"), Tree))
    assert [tree.steps[-1].outcome for tree in trees] == [Outcome.SUCCESS] * 2
    assert all(step.token_ids == [5, 6, 7] for tree in trees for step in tree.steps)


@pytest.mark.parametrize(("logprobs", "stored"), [("raw", 1.0), ("processed", 0.5)])
def test_the_manifest_says_of_which_distribution_log_probabilities_are(logprobs: str, stored: float) -> None:
    with ChatServer(play) as server:
        words = ("--base-url", server.url, "--temperature", "0.5", "--set", f"policy.endpoint.logprobs={logprobs}")
        result = agentcli("rollout", "--policy", "openai", "-o", "x", *words)
    assert result.exit_code == 0, result.output
    statistics = read_json(Path("x/manifest.json"), Manifest).stages["rollout"].statistics
    assert (statistics["temperature"], statistics["logprob_temperature"]) == (0.5, stored)
    steps = [step for tree in read_records(Path("x/trees.jsonl"), Tree) for step in tree.steps]
    assert {(step.temperature, step.logprob_temperature) for step in steps} == {(0.5, stored)}


@pytest.mark.parametrize("command", ["rollout", "demos", "eval"])
def test_the_served_model_is_the_one_that_is_named(command: str) -> None:
    with ChatServer(play) as server:
        words = ("--policy", "openai", "--base-url", server.url, "--model", "named", "--temperature", "0.5")
        result = agentcli(command, *words, *(("--split", "test") if command == "eval" else ()), "-o", "x")
    assert result.exit_code == 0, result.output
    assert {(body["model"], body["temperature"]) for body in server.bodies} == {("named", 0.5)}


def echo(body: dict[str, Any], before: int) -> Answer:
    """Plays the corridor well, and says the key in the text, as it is or in escapes; later it fails and says it again."""
    if before % 5 == 4:
        return Answer({"error": {"message": f"Incorrect API key: {SECRET}"}}, status=400, headers={"X-Key": SECRET})
    answer = play(body, before)
    spoken = answer.data.replace(b"<think>", f"<think>{SECRET} ".encode())
    if before % 2:
        spoken = spoken.replace(SECRET.encode(), b"\\u0073k-a\\/very-secret-key")
    return Answer(spoken)


@pytest.mark.parametrize("command", ["rollout", "eval", "demos"])
def test_a_key_that_the_server_echoes_stays_out_of_files_and_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with ChatServer(echo, models=Answer({"data": [{"id": f"model of {SECRET}"}]})) as server:
        words = (command, "--policy", "openai", "--set", "policy.model=null", "-o", "x", "--base-url", server.url)
        done = agentcli(*words, "--set", "rollout.most_errored=1")
    assert done.exit_code == 0, done.output
    assert len(server.bodies) > 1
    assert SECRET not in done.output
    files = [path for path in Path("x").rglob("*") if path.is_file()]
    assert any(b"*** " in path.read_bytes() for path in files)
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_an_evaluation_counts_the_tokens_that_the_server_counts() -> None:
    """It gives no token ids, so that the usage of its answers is all there is."""

    def bare(body: dict[str, Any], before: int) -> Answer:
        whole = play(body, before).body
        (choice,) = whole["choices"]
        return Answer({**whole, "choices": [{**choice, "token_ids": None, "logprobs": None}]})

    with ChatServer(bare) as server:
        done = agentcli("eval", "--policy", "openai", "--split", "test", "-o", "x", "--base-url", server.url)
    assert done.exit_code == 0, done.output
    rows = list(read_records(Path("x/evaluation/test.jsonl"), Episode))
    assert [row.tokens for row in rows] == [3 * row.steps for row in rows]
    assert all(row.tokens > 0 for row in rows)


def test_a_long_reply_is_an_errored_leaf_and_is_not_stored() -> None:
    with ChatServer([completion(EAST + "x" * 2 * 10**6)]) as server:
        done = agentcli("rollout", "--policy", "openai", "--tasks", "1", "-o", "x", "--base-url", server.url)
    assert done.exit_code == 1
    (tree,) = read_records(Path("x/trees.jsonl"), Tree)
    assert [step.outcome for step in tree.steps] == [Outcome.ERRORED] * 2
    assert all("environment.most_text_bytes" in (step.error or "") for step in tree.steps)
    assert Path("x/trees.jsonl").stat().st_size < 10_000
