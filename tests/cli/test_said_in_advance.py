"""What a command says before it works for long: why it cannot, or how much there is to do."""

import re
from pathlib import Path

import pytest
from bad_input_runs import START, TRAIN, folder
from command_line import agentcli, succeeded
from refusal import refused

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("folder")


def test_rows_without_tokens_are_the_reason_and_not_a_server_s_model() -> None:
    trees = Path("runs/x/trees.jsonl")
    bare = re.sub(rb'"(token_ids|logprobs)":\[[^]]*\]', rb'"\1":[]', trees.read_bytes())
    trees.write_bytes(bare)
    served = ("--model", "served-by-somebody", "-q")
    refused(agentcli(*TRAIN, *served), 3, "runs/x/trees.jsonl:1: ", "token_ids")
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("words", "episodes"),
    [
        (("pass-at-k", "-n", "3", "-k", "2"), 3),
        (("test-time-branch", "--samples", "2"), 2),
    ],
)
def test_an_evaluation_that_takes_long_says_how_many_episodes(words: tuple[str, ...], episodes: int) -> None:
    done = succeeded(words[0], "runs/x", *words[1:], "--model", START, "--split", "test", "--tasks", "2", "-o", "new")
    (line,) = [line for line in done.stderr.splitlines() if "episodes to play" in line]
    assert line.split()[0] == str(2 * episodes)
    assert ("k ends at 2" in done.stderr) == (words[0] == "pass-at-k")


@pytest.mark.parametrize(
    "words", [("eval", "--samples", "2"), ("pass-at-k", "-n", "2", "-k", "1"), ("test-time-branch",)]
)
def test_at_temperature_0_it_says_that_samples_are_alike(words: tuple[str, ...]) -> None:
    asked = (words[0], "runs/x", *words[1:], "--model", START, "--split", "test", "--tasks", "1")
    greedy = succeeded(*asked, "--temperature", "0", "-o", "greedy")
    assert "alike" in greedy.stderr
    sampled = succeeded(*asked, "--temperature", "1", "-o", "sampled")
    assert "alike" not in sampled.stderr
    # A finished evaluation plays nothing, and a policy without a model has no temperature.
    assert "alike" not in agentcli(*asked, "--temperature", "0", "-o", "greedy", "--resume").stderr


def test_a_dry_run_refuses_a_file_as_a_model() -> None:
    Path("notes.txt").write_text("no model", encoding="utf-8")
    words = ("eval", "runs/x", "--model", "notes.txt", "--split", "test", "-o", "new", "--dry-run", "-q")
    refused(agentcli(*words), 2, ("notes.txt", "is a file"))
