"""No command contacts anything that its user has not named: sockets are watched in the command's process and in those below it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_input_runs import CHAIN, MODEL, NOBODY, SFT, START, folder, teach
from chat_server import ChatServer
from command_line import all_commands
from processes import as_here

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("folder")

WATCHING = Path(__file__).parent / "support/watching"
SPEAKING = ("CI", "DISABLE_TELEMETRY", "DO_NOT_TRACK", "HF_", "TRANSFORMERS_", "WANDB_", "RAY_", "VLLM_", "GRADIO_")
"""How variables begin that would keep a library quiet: a command must be so without them."""
SHARD = ("rollout", "-c", "toy.yaml", "--policy", "random", "--shard")
OTHERS = [
    *[(*SFT[:-1], f"tracked-{name}", "--tracker", name) for name in ("tensorboard", "trackio", "wandb")],
    ("sft", "runs/demos", "-c", "toy.yaml", "--model", START, "--set", "sft.lora.rank=2", "-o", "runs/adapted"),
    ("rollout", *MODEL, "--method", "spark", "--set", "rollout.leaves=6", "-o", "runs/forked"),
    *[
        ("train", "runs/x", "--set", f"train.objective={name}", "-o", f"runs/{name}")
        for name in ("offline-ppo", "ppo", "process-reward")
    ],
    ("train", "runs/demos", *MODEL, "--set", "train.objective=dpo", "-o", "runs/dpo"),
    *[(*SHARD, f"{part}/2", "-o", f"runs/part-{part}") for part in (1, 2)],
    ("merge", "runs/part-1", "runs/part-2", "-o", "runs/whole"),
    ("credit", "compare", "runs/x", "grpo", "rewardflow"),
    ("assign-credit", "runs/x", "--explain", "1:1"),
    ("compare", "runs/x", "runs/loop"),
    ("show", "runs/x", "1"),
    ("view", "runs/x", "-o", "look.html"),
    ("plot", "runs/loop", "-o", "plot.svg"),
    *[("export", "runs/x", "--to", form) for form in ("parquet", "model", "card")],
    ("push", "runs/loop", "me/agent", "--dry-run"),
    ("validate", "runs/x/trees.jsonl"),
    ("schema", "tree"),
    ("doctor",),
    ("env", "list"),
    ("env", "check", "-c", "toy.yaml", "--tasks", "2"),
    ("env", "new", "my_world"),
    ("preset", "list"),
    ("preset", "show", "quickstart"),
    ("preset", "copy", "quickstart", "mine.yaml"),
]

Watched = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    """Runs a command of Python; what it and its children contacted is in the file `contacts`."""
    environment = {name: value for name, value in as_here().items() if not name.startswith(SPEAKING)}
    environment["PYTHONPATH"] = f"{WATCHING}{os.pathsep}{environment['PYTHONPATH']}"
    environment |= {"CONTACTS": str(tmp_path / "contacts"), "HF_HOME": str(tmp_path / "hub"), "WANDB_MODE": "offline"}
    environment |= {"TRACKIO_DIR": str(tmp_path / "trackio")}

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "contacts").write_text("")
        return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)

    return run


def test_sft_contacts_nothing(watched: Watched, tmp_path: Path) -> None:
    ended = watched("-m", "agentcli", *SFT)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "contacts").read_text() == ""


def test_a_contact_would_be_seen_in_a_child_too(watched: Watched, tmp_path: Path) -> None:
    child = "import socket; socket.socket(type=socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
    watched("-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    assert "192.0.2.1" in (tmp_path / "contacts").read_text()


@pytest.mark.slow
def test_no_command_contacts_anything(watched: Watched, tmp_path: Path) -> None:
    """All but the two servers, which wait for others: `serve` and `env serve`."""
    commands = [*CHAIN, *OTHERS]
    named = {name for name in all_commands() for words in commands if words[: len(name)] == name}
    assert set(all_commands()) - named == {("serve",), ("env", "serve")}
    with ChatServer(teach) as teacher:
        for words in commands:
            typed = [teacher.url if word == NOBODY else word for word in words]
            overwrite = ["--overwrite"] if words in CHAIN and words[0] != "env" else []
            ended = watched("-m", "agentcli", *typed, *overwrite)
            assert ended.returncode == 0, (words, ended.stderr)
            assert (tmp_path / "contacts").read_text() == "", words
