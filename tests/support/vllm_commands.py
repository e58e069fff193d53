"""A small policy whose heads vLLM can compute (32 wide), and commands in sessions of their own."""

import contextlib
import os
import select
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from processes import as_here, wait_until_gone

SETTINGS = """
environment: {name: "gated_world:GatedWorld", max_steps: 6, options: {tasks: 64, length: 3}}
prompt: {style: compact}
policy: {temperature: 1.0, max_tokens: 16, max_prompt_tokens: 512, dtype: float32}
demos: {count: 32, keep: all}
sft: {updates: 60, learning_rate: 1.0e-2, tiny: {hidden: 64, layers: 1, heads: 2, kv_heads: 1, intermediate: 32}}
rollout: {leaves: 4, tasks_per_step: 4, concurrency: 4}
train: {learning_rate: 1.0e-3, bf16: false}
run: {iterations: 3}
"""
CHAIN = [
    ("demos", "-c", "toy.yaml", "-o", "demos", "-q"),
    ("sft", "demos", "-c", "toy.yaml", "--model", "tiny", "-o", "sft", "-q"),
]
START = ("-c", "toy.yaml", "--model", "sft/checkpoint", "--policy", "vllm")
NEEDS_VLLM = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed; scripts/test_vllm.sh has it"),
]
ON_CPU = not torch.cuda.is_available()
REPLICAS = 1 if torch.cuda.device_count() == 1 else 2
REPLICATED = ("--set", f"policy.vllm.replicas={REPLICAS}")
LAST_ENGINE = f"EngineCore_DP{REPLICAS - 1}" if REPLICAS > 1 else "EngineCore"
PATIENCE = 600.0
"""Seconds that anything may take; an engine starts in one minute on two free cores."""


class Command:
    """A command line in a session of its own, by whose number all that it started is known."""

    def __init__(self, *words: str, **environment: str) -> None:
        self.stderr = Path("stderr.txt")
        with self.stderr.open("w", encoding="utf-8") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "agentcli", *words],
                env={**as_here(), **environment},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        self.sessions = {self.process.pid}

    def end(self) -> int:
        """Waits for its end and gives its code; nothing that it started is left."""
        code = self.process.wait(PATIENCE)
        while left := self.members():
            wait_until_gone(left[0])
        return code

    def members(self) -> list[int]:
        """The processes of its session, and those of sessions that these began."""
        return [pid for pid in processes() if session(pid) in self.sessions]

    def named(self, text: str) -> int:
        """The one process below it whose command line has this text."""
        below = descendants(self.process.pid)
        self.sessions |= {number for pid in below if (number := session(pid)) is not None}
        (pid,) = [pid for pid in below if text in command_line(pid)]
        return pid

    def refusal(self) -> str:
        """Its last line; there is no traceback."""
        lines = self.stderr.read_text(encoding="utf-8").splitlines()
        assert not [line for line in lines if line.startswith("Traceback")], lines
        assert lines[-1].startswith("error: "), lines
        return lines[-1]


def processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def status(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name: state, parent, group, session; none for one that is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return []


def session(pid: int) -> int | None:
    fields = status(pid)
    return int(fields[3]) if fields and fields[0] != "Z" else None


def descendants(pid: int) -> list[int]:
    children = [one for one in processes() if status(one)[1:2] == [str(pid)]]
    return [*children, *(deeper for child in children for deeper in descendants(child))]


def command_line(pid: int) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


class Gated(NamedTuple):
    """A rollout that waits for its test before its 40th task."""

    command: Command
    gate: int

    def struck(self, pid: int, number: int) -> Command:
        """The rollout going on after a signal was sent."""
        os.kill(pid, number)
        os.write(self.gate, b".")
        return self.command


def begun(*words: str) -> Gated:
    """A rollout of more than 40 tasks that has written its first trees, and does not end before it was struck."""
    gate = Path(tempfile.mkdtemp(prefix="gate-"))
    pipes = []
    for name in ("reached", "on"):
        os.mkfifo(gate / name)
        pipes.append(os.open(gate / name, os.O_RDWR))
    reached, on = pipes
    command = Command(*words, GATE=str(gate), GATE_TASK="train/40")
    process = os.pidfd_open(command.process.pid)
    ready = select.select([reached, process], [], [], PATIENCE)[0]
    assert ready == [reached], command.stderr.read_text(encoding="utf-8")
    return Gated(command, on)
