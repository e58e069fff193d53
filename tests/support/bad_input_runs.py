"""Small finished runs to damage, and what every refusal must look like.

The runs are played in the toy world by a policy of 0.02 M parameters that is made for it: real stages, real checkpoints, two
seconds for all of them. Every test damages a copy of its own.
"""

import functools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentcli.prompts.tagged import write_tagged
from chat_server import Answer as Reply
from chat_server import ChatServer, completion
from command_line import Answer, agentcli, all_commands, chained
from older_runs import without_checksums
from refusal import refused

SETTINGS = """
environment: {name: "toy_world:ToyWorld", max_steps: 6, options: {tasks: 4, length: 3}}
prompt: {style: compact}
policy: {temperature: 1.0, max_tokens: 16, endpoint: {retries: 0, request_seconds: 20}}
demos: {count: 8, keep: all}
sft: {updates: 4, learning_rate: 3.0e-3, tiny: {hidden: 32, layers: 1, heads: 2, kv_heads: 1, intermediate: 32}}
rollout: {leaves: 2, tasks_per_step: 2, concurrency: 2}
train: {learning_rate: 1.0e-3, rows_per_update: 8}
evaluation: {split: test}
run: {iterations: 1}
"""
START = "runs/sft/checkpoint"
MODEL = ("-c", "toy.yaml", "--model", START)
NOBODY = "http://127.0.0.1:9/v1"
TEACHER = ("-c", "toy.yaml", "--policy", "openai", "--model", "teacher", "--base-url", NOBODY)
"""While the chain is run somebody answers; later what is refused is refused before the teacher is asked."""
CHAIN = [
    ("demos", "-c", "toy.yaml", "-o", "runs/demos"),
    ("demos", "-c", "toy.yaml", "--seed", "1", "--count", "5", "-o", "runs/more"),
    ("demos", "--annotate", "runs/demos", *TEACHER, "-o", "runs/annotated"),
    ("sft", "runs/demos", "-c", "toy.yaml", "--model", "tiny", "-o", "runs/sft"),
    ("rollout", *MODEL, "-o", "runs/x"),
    ("assign-credit", "runs/x"),
    ("train", "runs/x"),
    ("train", "runs/x", "--set", "train.lora.rank=2", "-o", "runs/lora"),
    ("eval", "runs/x", "--split", "test"),
    ("pass-at-k", "runs/x", "--split", "test", "-n", "2", "-k", "1", "-o", "runs/votes"),
    ("test-time-branch", "runs/x", "--split", "test", "-o", "runs/votes"),
    ("run", "--preset", "./toy.yaml", "--model", START, "-o", "runs/loop"),
    ("env", "panel", "-c", "toy.yaml", "--split", "test", "-o", "panel.json"),
]
ROLLOUT = ("rollout", *MODEL, "-o", "new")
RESUMED = ("rollout", *MODEL, "-o", "runs/x", "--resume")
CREDIT = ("assign-credit", "runs/x", "--overwrite")
TRAIN = ("train", "runs/x", "-o", "new")
SFT = ("sft", "runs/demos", "-c", "toy.yaml", "--model", "tiny", "-o", "new")
SFT_ON = (*SFT[:4], "--model", START, "-o", "new")
DEMOS = ("demos", "-c", "toy.yaml", "-o", "runs/demos", "--resume")
ANNOTATE = ("demos", "--annotate", "runs/demos", *TEACHER, "-o", "new")
EVAL = ("eval", "runs/x", "--split", "test", "--resume")
RUN = ("run", "--preset", "./toy.yaml", "--model", START, "-o", "new")
PANEL = (*ROLLOUT, "--panel", "panel.json")

TREES, GIVEN, EPISODES = "runs/x/trees.jsonl", "runs/x/credit/grpo.jsonl", "runs/x/evaluation/test.jsonl"
DEMO_TREES, MANIFEST, BEGUN = "runs/demos/trees.jsonl", "runs/x/manifest.json", "runs/x/settings/rollout.json"
WEIGHTS, TOKENIZER = f"{START}/model.safetensors", f"{START}/tokenizer.json"
ADAPTER = "runs/lora/checkpoint"

EXISTING = {
    "rollout": ("rollout", *MODEL, "-o", "runs/x"),
    "demos": DEMOS[:-1],
    "annotate": (*ANNOTATE[:-1], "runs/annotated"),
    "sft": (*SFT[:-1], "runs/sft"),
    "assign-credit": ("assign-credit", "runs/x"),
    "train": ("train", "runs/x"),
    "eval": EVAL[:-1],
    "pass-at-k": ("pass-at-k", "runs/x", "--split", "test", "-n", "2", "-k", "1", "-o", "runs/votes"),
    "test-time-branch": ("test-time-branch", "runs/x", "--split", "test", "-o", "runs/votes"),
    "run": (*RUN[:-1], "runs/loop"),
}
"""Every stage that can be resumed, as a command whose output is there."""
OTHER_SETTINGS = {
    "rollout": (("--leaves", "3"), "rollout.leaves was 2, now 3"),
    "demos": (("--seed", "4"), "seed was 0, now 4"),
    "annotate": (("--temperature", "0.5"), "policy.temperature was 1.0, now 0.5"),
    "sft": (("--set", "sft.updates=9"), "sft.updates was 4, now 9"),
    "assign-credit": (("--set", "credit.success_reward=2"), "credit.success_reward was 1.0, now 2.0"),
    "train": (("--set", "train.clip=0.5"), "train.clip was 0.2, now 0.5"),
    "eval": (("--temperature", "0.5"), "evaluation.temperature was 1.0, now 0.5"),
    "pass-at-k": (("--set", "evaluation.depth=2"), "evaluation.depth was None, now 2"),
    "test-time-branch": (("--branching", "3"), "evaluation.branching was 4, now 3"),
    "run": (("--max-steps", "5"), "environment.max_steps was 6, now 5"),
}
"""Words that change a setting, and what is said of it."""
SAMPLED_FROM = "runs/x/checkpoint/generation_config.json"
OTHER_INPUT = {
    "rollout": (f"{START}/generation_config.json", b" "),
    "annotate": (DEMO_TREES, b"\n"),
    "sft": (DEMO_TREES, b"\n"),
    "assign-credit": (TREES, b"\n"),
    "train": (GIVEN, b"\n"),
    "eval": (SAMPLED_FROM, b" "),
    "pass-at-k": (SAMPLED_FROM, b" "),
    "test-time-branch": (SAMPLED_FROM, b" "),
    "run": (f"{START}/generation_config.json", b" "),
}
"""A file that the stage read, and what is put behind it."""

QUIET = {path for path, command in all_commands().items() if any(option.name == "quiet" for option in command.options)}

Damage = Callable[[], Any]
Case = tuple[str, Damage | None, tuple[str, ...], int, tuple[str, ...]]
"""What is wrong, how it is made wrong, the words that must be refused, the exit code, and what the line must say."""


def teach(body: dict[str, Any], before: int) -> Reply:
    """What the teacher of CHAIN answers."""
    action = body["messages"][0]["content"].partition("The action is:\n")[2].partition("\n")[0]
    return completion(write_tagged("think", "on", action))


@functools.cache
def built(base: Path) -> Path:
    """The folder in which the chain was run, once for all tests of the session."""
    with ChatServer(teach) as server:
        words = ([server.url if word == NOBODY else word for word in command] for command in CHAIN)
        return chained(base / "bad-input-runs", SETTINGS, words)


@pytest.fixture
def folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, no_variables: None, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of the finished runs as the current folder: toy.yaml, panel.json and runs/demos, sft, x, lora, loop, latest."""
    shutil.copytree(built(tmp_path_factory.getbasetemp()), tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def contents() -> dict[str, Any]:
    """Everything below the current folder: bytes and time of change of files, targets of links, the names of folders."""
    found: dict[str, Any] = {}
    for path in sorted(Path().rglob("*")):
        if path.is_symlink():
            found[str(path)] = path.readlink()
        else:
            found[str(path)] = (path.stat().st_mtime_ns, path.read_bytes()) if path.is_file() else "folder"
    return found


def quietly(*words: str) -> Answer:
    """The command without notes and bars: with -q, where it has that."""
    return agentcli(*words, *(["-q"] if any(words[: len(path)] == path for path in QUIET) else []))


def untouched(words: tuple[str, ...]) -> Answer:
    """What the command answers, which must change nothing on the disk."""
    before = contents()
    answer = quietly(*words)
    assert contents() == before
    return answer


def write(path: str, data: bytes | str = b"") -> Damage:
    """Damage: a file with this content."""

    def work() -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data if isinstance(data, bytes) else data.encode())

    return work


def edit(path: str, change: Callable[[bytes], bytes]) -> Damage:
    """Damage: the file's bytes changed."""
    return lambda: Path(path).write_bytes(change(Path(path).read_bytes()))


def edit_lines(path: str, change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    """Damage: the file's lines changed."""
    return edit(path, lambda data: b"".join(change(data.splitlines(keepends=True))))


def set_in(path: str, line: int, *at: Any) -> Damage:
    """Damage: one value of the JSON on a line (0-based; of a file of one record: None) replaced; the last of `at` is the value."""

    def change(text: bytes) -> bytes:
        record = json.loads(text)
        *keys, last, value = at
        functools.reduce(lambda inner, key: inner[key], keys, record)[last] = value
        return json.dumps(record).encode() + b"\n"

    if line < 0:
        return edit(path, change)
    return edit_lines(path, lambda lines: [*lines[:line], change(lines[line]), *lines[line + 1 :]])


def link(path: str, target: str) -> Damage:
    """Damage: a symbolic link in the place of what is there."""

    def work() -> None:
        remove(path)()
        Path(path).symlink_to(target)

    return work


def folder_at(path: str) -> Damage:
    """Damage: an empty folder in the place of what is there."""

    def work() -> None:
        remove(path)()
        Path(path).mkdir()

    return work


def remove(path: str) -> Damage:
    """Damage: a file or folder is gone."""

    def work() -> None:
        if Path(path).is_dir() and not Path(path).is_symlink():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)

    return work


def signed_out() -> None:
    """Damage: W&B is online and has no key."""
    import wandb

    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        del os.environ[name]
    os.environ.update(NETRC="none", WANDB_CONFIG_DIR="none")
    wandb.teardown()  # it reads the environment once


def copy(source: str, target: str) -> Damage:
    """Damage: another file's content."""

    def work() -> None:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)

    return work


def older(damage: Damage) -> Damage:
    """Damage to runs/x, whose manifest has no checksums."""

    def work() -> None:
        damage()
        without_checksums(Path("runs/x"))

    return work


def without_a_tensor(path: str) -> Damage:
    """Damage: the last tensor of a safetensors file is gone."""

    def work() -> None:
        from safetensors.numpy import load_file, save_file

        tensors = load_file(path)
        del tensors[max(tensors)]
        save_file(tensors, path, metadata={"format": "pt"})

    return work


def torn_inside(lines: list[bytes]) -> list[bytes]:
    """The second line broken off where others follow."""
    return [lines[0], lines[1][:200] + b"\n", *lines[2:]]


def torn_at_the_end(lines: list[bytes]) -> list[bytes]:
    """The last line broken off."""
    return [*lines[:-1], lines[-1][:200]]


def parameters(**groups: list[Case]) -> list[Any]:
    """The cases of all groups as parameters (damage, words, code, said)."""
    return [
        pytest.param(damage, words, code, said, id=f"{group}: {name}".replace("/", "."))
        for group, cases in groups.items()
        for name, damage, words, code, said in cases
    ]


def check(damage: Damage | None, words: tuple[str, ...], code: int, said: tuple[str, ...]) -> None:
    """The body of every test of a refusal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", os.environ.copy())
        if damage is not None:
            damage()
        refused(untouched(words), code, said)
