"""A named pipe, a loop of links or a directory in the place of a file of a run: one line at once, whatever the command."""

import os
import shutil
import socket
from pathlib import Path

import pytest
from bad_input_runs import (
    ADAPTER,
    ANNOTATE,
    BEGUN,
    CREDIT,
    DEMO_TREES,
    DEMOS,
    EPISODES,
    EVAL,
    GIVEN,
    MANIFEST,
    MODEL,
    PANEL,
    RESUMED,
    ROLLOUT,
    SFT,
    START,
    TOKENIZER,
    TRAIN,
    TREES,
    WEIGHTS,
    Case,
    Damage,
    check,
    folder,
    folder_at,
    link,
    parameters,
    remove,
)
from command_line import agentcli

__all__ = ["folder"]

SUMMARY = "runs/x/evaluation/test.json"
KEPT = "runs/x/evaluation/trees/test.jsonl"
LOOPED = "runs/loop/iteration_000/manifest.json"
GENERATION = f"{START}/generation_config.json"
TOKENIZER_CONFIG = f"{START}/tokenizer_config.json"


def beside(damage: Damage) -> Damage:
    """The damage, after the run was copied to runs/y to be compared with."""

    def work() -> None:
        shutil.copytree("runs/x", "runs/y")
        damage()

    return work


def pipe(path: str) -> Damage:
    """Damage: a named pipe in the place of what is there."""

    def work() -> None:
        remove(path)()
        Path(path).parent.mkdir(exist_ok=True)
        os.mkfifo(path)

    return work


def plug(path: str) -> Damage:
    """Damage: a socket in the place of what is there."""

    def work() -> None:
        remove(path)()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)

    return work


IN_THE_WAY = {
    "folder": folder_at,
    "socket": plug,
    "device": lambda path: link(path, "/dev/zero"),
    "loop": lambda path: link(path, Path(path).name),
}
"""What may stand where a file was, besides a pipe."""


READ: list[tuple[str, tuple[str, ...], int]] = [
    ("toy.yaml", ROLLOUT, 2),
    ("toy.yaml", ("preset", "show", "./toy.yaml"), 2),
    ("toy.yaml", ("preset", "copy", "./toy.yaml", "z.yaml"), 2),
    ("toy.yaml", ("validate", "toy.yaml"), 3),
    ("panel.json", PANEL, 3),
    ("panel.json", ("validate", "panel.json"), 3),
    (TREES, CREDIT, 3),
    (TREES, TRAIN, 3),
    (TREES, RESUMED, 3),
    (TREES, ("assign-credit", "runs/x", "--explain", "best"), 3),
    (TREES, ("credit", "compare", "runs/x", "grpo", "rloo"), 3),
    (TREES, ("show", "runs/x", "1"), 3),
    (TREES, ("compare", "runs/x", "runs/y"), 3),
    (GIVEN, TRAIN, 3),
    (GIVEN, ("validate", GIVEN), 3),
    (MANIFEST, TRAIN, 3),
    (MANIFEST, ("show", "runs/x"), 3),
    (BEGUN, RESUMED, 3),
    (DEMO_TREES, SFT, 3),
    (DEMO_TREES, DEMOS, 3),
    (DEMO_TREES, ANNOTATE, 3),
    (EPISODES, EVAL, 3),
    (EPISODES, ("compare", "runs/x", "runs/y", "--label", "test"), 3),
    (SUMMARY, ("plot", "runs/x", "-o", "p.svg"), 3),
    (SUMMARY, ("compare", SUMMARY, "runs/y/evaluation/test.json"), 3),
    (KEPT, ("show", "runs/x", "--evaluation", "test", "--failed"), 3),
    (LOOPED, ("plot", "runs/loop", "-o", "p.svg"), 3),
    (LOOPED, ("show", "runs/loop"), 3),
    (TREES, ("export", "runs/x", "--to", "messages", "-o", "m.jsonl"), 3),
    (TREES, ("export", "runs/x", "--to", "parquet", "-o", "m.parquet"), 3),
    (MANIFEST, ("export", "runs/x", "--to", "card", "-o", "card.md"), 3),
    (MANIFEST, ("merge", "runs/x", "runs/y", "-o", "z"), 3),
    ("card.md", ("push", "runs/x", "me/x", "--card", "card.md", "--dry-run"), 3),
    ("questions/a.parquet", ("env", "panel", "tool_qa", "--data", "questions"), 3),
    (WEIGHTS, ROLLOUT, 3),
    (TOKENIZER, ROLLOUT, 3),
    (f"{START}/config.json", ("eval", *MODEL, "-o", "new"), 3),
    (f"{ADAPTER}/adapter_config.json", ("export", "runs/lora", "--to", "model", "-o", "m"), 3),
    ("runs/x/.lock", RESUMED, 3),
]


CASES: list[Case] = [
    (f"{path} {' '.join(words[:2])}", beside(pipe(path)), words, code, (path,)) for path, words, code in READ
]


@pytest.mark.parametrize(("damage", "words", "code", "said"), parameters(pipe=CASES))
def test_a_named_pipe_is_refused_at_once(
    folder: Path, damage: Damage, words: tuple[str, ...], code: int, said: tuple[str, ...]
) -> None:
    check(damage, words, code, said)


@pytest.mark.parametrize("kind", IN_THE_WAY)
@pytest.mark.parametrize(
    ("path", "words", "code"),
    [("toy.yaml", ROLLOUT, 2), ("panel.json", PANEL, 3), (TREES, CREDIT, 3), (MANIFEST, ("show", "runs/x"), 3)],
)
def test_nothing_but_a_file_is_read(folder: Path, kind: str, path: str, words: tuple[str, ...], code: int) -> None:
    check(IN_THE_WAY[kind](path), words, code, (path,))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (TREES, ("credit", "compare", "runs/x", "grpo", "rloo")),
        (EPISODES, ("compare", "runs/x", "runs/y", "--label", "test")),
        (TREES, ("compare", "runs/x", "runs/y")),
    ],
)
def test_comparisons_refuse_a_directory(folder: Path, path: str, words: tuple[str, ...]) -> None:
    check(beside(folder_at(path)), words, 3, (path,))


def test_comparisons_refuse_a_loop_of_links(folder: Path) -> None:
    words = ("compare", SUMMARY, "runs/y/evaluation/test.json")
    check(beside(link(SUMMARY, Path(SUMMARY).name)), words, 3, (SUMMARY,))


ABSENT: list[tuple[str, tuple[str, ...], int]] = [
    (TREES, CREDIT, 3),
    (BEGUN, RESUMED, 3),
    ("runs/x/settings/train.json", ("train", "runs/x", "--resume"), 3),
    ("runs/sft/optimizer.safetensors", TRAIN, 3),
    (GIVEN, (*TRAIN, "--credit", "grpo"), 3),
    (GIVEN, ("credit", "compare", "runs/x", "grpo", "rloo"), 3),
    (GIVEN, ("assign-credit", "runs/x", "--explain", "best"), 3),
    (GIVEN, ("show", "runs/x", "1", "--credit", "grpo"), 3),
    (EPISODES, EVAL, 3),
    (SUMMARY, EVAL, 3),
    (KEPT, EVAL, 3),
    (KEPT, ("show", "runs/x", "--evaluation", "test", "--failed"), 3),
    ("runs/x/checkpoint", ("eval", "runs/x", "--split", "test", "--label", "new"), 4),
    (f"{START}/config.json", ROLLOUT, 3),
    (TOKENIZER_CONFIG, ROLLOUT, 3),
    (GENERATION, ROLLOUT, 3),
    (f"{START}/critic.json", (*ROLLOUT, "--critic", START), 3),
    ("runs/x/checkpoint/model.safetensors", ("push", "runs/x", "me/x", "--dry-run"), 3),
]
"""Files that a command could do without, or make anew."""


@pytest.mark.parametrize(("path", "words", "code"), ABSENT, ids=[f"{path} {words[0]}" for path, words, _ in ABSENT])
def test_a_loop_of_links_is_not_taken_for_an_absent_file(
    folder: Path, path: str, words: tuple[str, ...], code: int
) -> None:
    """It was taken for one: the work was done without it, or again, and nothing was said."""
    check(link(path, Path(path).name), words, code, (path,))


@pytest.mark.parametrize(
    ("path", "words"),
    [(BEGUN, RESUMED), (GIVEN, ("credit", "compare", "runs/x", "grpo", "rloo")), (GENERATION, ROLLOUT)],
)
def test_nor_is_a_link_to_nowhere(folder: Path, path: str, words: tuple[str, ...]) -> None:
    check(link(path, "nowhere"), words, 3, (path,))


def test_validate_names_such_a_link_among_the_other_files(folder: Path) -> None:
    link("runs/x/seconds.jsonl", "seconds.jsonl")()
    answer = agentcli("validate", "runs/x")
    assert answer.code == 3
    (line,) = [line for line in answer.stderr.splitlines() if "seconds.jsonl" in line]
    assert line.startswith("error: ")


@pytest.mark.parametrize("path", [GENERATION, TOKENIZER_CONFIG, f"{START}/chat_template.jinja"])
def test_a_folder_in_the_place_of_a_models_file_is_refused(folder: Path, path: str) -> None:
    check(folder_at(path), ROLLOUT, 3, (path,))


def test_other_folders_may_lie_beside_a_models_files(folder: Path) -> None:
    Path(START, "checkpoint-1.5").mkdir()
    assert agentcli(*ROLLOUT, "-q").code == 0
