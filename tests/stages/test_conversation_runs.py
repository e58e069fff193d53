"""Conversations that grow, from demonstrations to a trained policy, as one types it."""

import json
from pathlib import Path

import msgspec
import pytest
from agentcli.records.files import read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Tree
from command_line import agentcli, chained, succeeded

SETTINGS = """
extends: quickstart-tunnel
prompt: {style: STYLE}
demos: {count: 60}
sft: {updates: 60}
environment: {tasks: 6}
rollout: {leaves: 4, tasks_per_step: 6}
train: {rows_per_update: 128}
"""
COMMANDS = [
    ("demos", "-c", "toy.yaml", "-o", "demos", "-q"),
    ("sft", "demos", "-c", "toy.yaml", "-o", "sft", "-q"),
    ("rollout", "-c", "toy.yaml", "--model", "sft/checkpoint", "-o", "run", "-q"),
    ("assign-credit", "run", "--method", "grpo", "-q"),
    ("train", "run", "-q"),
]


@pytest.fixture(scope="module", params=["chat", "chat-compact"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat") / request.param
    return chained(folder, SETTINGS.replace("STYLE", request.param), COMMANDS)


def test_training_runs_a_trajectory_as_one_sequence_of_the_tokens_that_were_sampled(place: Path) -> None:
    stages = RunDirectory(place / "run").load_manifest().stages
    figures = stages["train"].statistics
    assert figures["packed"]
    assert figures["tokens_saved"] > 0.6 * figures["tokens_read"]
    assert figures["logprob_gap"]["max"] < 1e-4
    ledger = stages["rollout"].ledger
    assert ledger is not None
    assert ledger.shared_prompt_tokens > 0.7 * ledger.prompt_tokens


def test_exported_messages_are_the_conversation(place: Path) -> None:
    assert agentcli("export", str(place / "run"), "--to", "messages", "--all", "--overwrite").code == 0
    (tree, *_) = read_records(place / "run/trees.jsonl", Tree)
    rows = [json.loads(line) for line in (place / "run/export/messages.jsonl").read_text().splitlines()]
    longest = max((row for row in rows if row["task"] == tree.task.id), key=lambda row: len(row["prompt"]))
    roles = [turn["role"] for turn in longest["prompt"] if turn["role"] != "system"]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    step = tree.steps[longest["step"]]
    assert longest["prompt"][-1]["content"] == step.prompt
    assert longest["prompt"][-2]["content"] == tree.steps[step.parent or 0].response


def test_one_step_shows_what_was_added(place: Path) -> None:
    shown = succeeded("show", str(place / "run"), "1", "--step", "1")
    assert "prompt, after step 0" in shown.stdout


def test_a_step_that_continues_nothing_is_refused(place: Path) -> None:
    file = place / "run/trees.jsonl"
    lines = file.read_bytes().splitlines()
    tree = msgspec.json.decode(lines[0])
    tree["steps"][0]["continues"] = "exact"
    damaged = place / "damaged.jsonl"
    damaged.write_bytes(msgspec.json.encode(tree) + b"\n")
    told = agentcli("validate", "--kind", "tree", str(damaged))
    assert told.code == 3
    assert "steps[0].continues" in told.stdout + told.stderr


def test_a_method_that_acts_in_several_copies_is_refused_in_one_line(place: Path) -> None:
    told = agentcli(
        "rollout", "-c", str(place / "toy.yaml"), "--method", "dpepo", "--policy", "search", "-o", str(place / "copies")
    )
    assert told.code == 2
    assert "prompt.style" in told.stderr
