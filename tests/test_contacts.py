"""No command contacts anything that its user has not named: sockets are watched in the command's process and in those below it."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from agentcli.environments.registry import WORLDS
from bad_input_runs import CHAIN, MODEL, NOBODY, SETTINGS, SFT, START, teach
from chat_server import ChatServer
from command_line import all_commands
from processes import as_here

WATCHING = Path(__file__).parent / "support/watching"
SPEAKING = ("CI", "DISABLE_TELEMETRY", "DO_NOT_TRACK", "HF_", "TRANSFORMERS_", "WANDB_", "RAY_", "VLLM_", "GRADIO_")
"""How variables begin that would keep a library quiet: a command must be so without them."""
# MLflow is tested where it is installed.
TRACKERS = ("tensorboard", "trackio", "wandb", *(("mlflow",) if find_spec("mlflow") else ()))
SHARD = ("rollout", "-c", "toy.yaml", "--policy", "random", "--shard")
OTHERS = [
    *[(*SFT[:-1], f"tracked-{name}", "--tracker", name) for name in TRACKERS],
    ("sft", "runs/demos", "-c", "toy.yaml", "--model", START, "--set", "sft.lora.rank=2", "-o", "runs/adapted"),
    ("rollout", *MODEL, "--method", "spark", "--set", "rollout.leaves=6", "-o", "runs/forked"),
    *[(*SHARD, f"{part}/2", "-o", f"runs/part-{part}") for part in (1, 2)],
    ("merge", "runs/part-1", "runs/part-2", "-o", "runs/whole"),
    ("credit", "compare", "runs/x", "grpo", "rewardflow"),
    ("assign-credit", "runs/x", "--explain", "1:1"),
    ("compare", "runs/x", "runs/loop"),
    ("show", "runs/x", "1"),
    ("view", "runs/x", "-o", "look.html"),
    ("plot", "runs/loop", "-o", "plot.svg"),
    *[("export", "runs/x", "--to", form) for form in ("parquet", "conversations", "model", "card")],
    ("import", "runs/x/export/conversations.jsonl", "--from", "messages", "-o", "runs/imported"),
    ("push", "runs/loop", "me/agent", "--dry-run"),
    ("validate", "runs/x/trees.jsonl"),
    ("schema", "tree"),
    ("doctor",),
    ("env", "list"),
    *[("env", "check", name, "--tasks", "2") for name in WORLDS],
    ("env", "new", "my_world"),
    # It plays commands that are watched here by themselves.
    ("study", "tunnel-credit", "--seeds", "0", "-o", "runs/credit", "--dry-run"),
    ("preset", "list"),
    ("preset", "show", "quickstart"),
    ("preset", "copy", "quickstart", "mine.yaml"),
]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the current one, and variables with which processes write what they contact into the file returned."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    path = as_here()["PYTHONPATH"]
    for name in os.environ:
        if name.startswith(SPEAKING):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", f"{WATCHING}{os.pathsep}{path}")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("CONTACTS", "HF_HOME", "TRACKIO_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "CONTACTS").touch()
    return tmp_path / "CONTACTS"


def contacts_of(commands: Sequence[Sequence[str]], contacts: Path) -> str:
    """What the commands and the processes below them contacted; each must end well."""
    Path("toy.yaml").write_text(SETTINGS, encoding="utf-8")
    with ChatServer(teach) as teacher:
        typed = [[teacher.url if word == NOBODY else word for word in words] for words in commands]
        words = [sys.executable, "-m", "watched_commands"]
        ended = subprocess.run(words, input=json.dumps(typed), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return contacts.read_text()


def test_sft_contacts_nothing(watched: Path) -> None:
    demos, sft = CHAIN[0], CHAIN[3]
    assert contacts_of([demos, sft], watched) == ""


@pytest.mark.slow
def test_no_command_contacts_anything(watched: Path) -> None:
    """All but the two servers, which wait for others: `serve` and `env serve`."""
    commands = [*CHAIN, *OTHERS]
    named = {name for name in all_commands() for words in commands if words[: len(name)] == name}
    assert set(all_commands()) - named == {("serve",), ("env", "serve")}
    assert contacts_of(commands, watched) == ""


def test_a_contact_would_be_seen_in_a_child_too(watched: Path) -> None:
    child = "import socket; socket.socket(type=socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert "192.0.2.1" in watched.read_text()
