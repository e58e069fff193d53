"""Engines and servers that are killed: one line, nothing left, and a rollout that resumes."""

import os
import signal
from pathlib import Path

import pytest
from agentcli.records.runs import RunDirectory
from agentcli.stages.serve import served_name
from command_line import agentcli
from refusal import refused
from vllm_commands import LAST_ENGINE, NEEDS_VLLM, REPLICATED, START, Command, begun

pytestmark = [*NEEDS_VLLM, pytest.mark.usefixtures("folder")]

PORT = "18431"


def lines(run: str) -> int:
    return len(Path(run, "trees.jsonl").read_bytes().splitlines())


def test_a_killed_engine_ends_the_rollout_in_one_line_and_it_resumes() -> None:
    gated = begun("rollout", *START, *REPLICATED, "-o", "killed", "-q")
    command = gated.struck(gated.command.named(LAST_ENGINE), signal.SIGKILL)
    assert command.end() == 4
    assert "--resume" in command.refusal()
    assert 0 < lines("killed") < 64
    resumed = Command("rollout", *START, "-o", "killed", "--resume", "-q")
    assert resumed.end() == 0
    assert lines("killed") == 64


def test_a_killed_command_leaves_no_engine() -> None:
    gated = begun("rollout", *START, *REPLICATED, "-o", "left", "-q")
    gated.command.named(LAST_ENGINE)
    command = gated.struck(gated.command.process.pid, signal.SIGKILL)
    assert command.end() == -signal.SIGKILL


def test_ctrl_c_leaves_a_rollout_that_resumes_and_no_engine() -> None:
    gated = begun("rollout", *START, "-o", "interrupted", "-q")
    command = gated.struck(gated.command.process.pid, signal.SIGINT)
    assert command.end() == 130
    assert "--resume" in command.refusal()


def test_a_server_says_how_it_is_used_and_ends_with_ctrl_c() -> None:
    server = Command("serve", "sft", "-c", "toy.yaml", "--port", PORT, "-q")
    assert server.process.stdout is not None
    use = server.process.stdout.readline().split()
    rollout = ("rollout", "-c", "toy.yaml", *use, "--tasks", "4", "-q")
    assert agentcli(*rollout, "-o", "served").code == 0
    policy = RunDirectory(Path("served")).load_manifest().stages["rollout"].settings["policy"]
    assert policy["model"] == served_name("sft/checkpoint")
    assert agentcli("assign-credit", "served", "-q").code == 0
    assert agentcli("train", "served", "--model", "sft/checkpoint", "-q").code == 0
    server.named("EngineCore")
    server.process.send_signal(signal.SIGINT)
    assert server.end() == 0
    refused(agentcli(*rollout, "-o", "unserved"), 4, names=PORT, remedy="--base-url")


def test_a_killed_server_ends_in_one_line() -> None:
    server = Command("serve", "sft", "-c", "toy.yaml", "--port", PORT, "-q")
    assert server.process.stdout is not None
    server.process.stdout.readline()
    server.named("EngineCore")
    os.kill(server.named("api_server"), signal.SIGKILL)
    assert server.end() == 4
    assert "SIGKILL" in server.refusal()
