"""SIGKILL to a server in mid-rollout: one line, and after a restart `--resume` gives the bytes of an undisturbed rollout."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Answer, agentcli
from processes import SECONDS, as_here, kill
from refusal import refused
from served_worlds import process_of
from websockets.sync.client import connect

WORLD = "gated_world:GatedWorld"
WORDS = ("--policy", "expert", "--tasks", "4", "--leaves", "2", "--concurrency", "1", "-q")


def test_a_rollout_goes_on_where_its_server_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert agentcli("rollout", "--env", WORLD, *WORDS, "-o", "runs/local").code == 0
    for name in ("reached", "on"):
        os.mkfifo(name)
    reached = os.open("reached", os.O_RDONLY | os.O_NONBLOCK)
    with process_of(WORLD, "--port", "0", GATE=str(tmp_path), GATE_TASK="train/2") as (url, server):
        rollout = ("rollout", "--env", url, *WORDS, "-o", "runs/x")
        command = [sys.executable, "-m", "agentcli", *rollout]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=as_here()
        ) as client:
            assert select.select([reached], [], [], SECONDS)[0]
            kill(server.pid)
            out, err = client.communicate(timeout=SECONDS)
    refused(Answer(client.returncode, out, err), 4, names=url, remedy="agentcli env serve")
    before = Path("runs/x/trees.jsonl").read_bytes()
    assert before.count(b"\n") == 2
    with process_of(WORLD, "--port", url.rpartition(":")[2]):
        resumed = agentcli(*rollout, "--resume")
    assert resumed.code == 0, resumed
    assert Path("runs/x/trees.jsonl").read_bytes() == Path("runs/local/trees.jsonl").read_bytes()


def test_ctrl_c_ends_a_server_that_has_clients() -> None:
    with process_of("toy_world:ToyWorld", "--port", "0") as (url, server), connect(f"{url.replace('http', 'ws')}/ws"):
        server.send_signal(signal.SIGINT)
        assert server.wait(SECONDS) == 0
