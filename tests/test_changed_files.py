"""A digit that changes after its stage has ended: exit code 3, and the file and line of it, wherever the file is read."""

import re
from pathlib import Path

import pytest
from bad_input_runs import (
    EPISODES,
    EVAL,
    EXISTING,
    GIVEN,
    RESUMED,
    TRAIN,
    agentcli,
    check,
    edit,
    edit_lines,
    folder,
    quietly,
    write,
)
from older_runs import without_checksums
from refusal import refused

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("folder")

VALIDATE = ("validate", "runs/x")
SUMMARY, OPTIMIZER = "runs/x/evaluation/test.json", "runs/x/optimizer.safetensors"
CARRY = ("train", "runs/x", "--model", "runs/x/checkpoint", "-o", "new")
READERS = [
    (GIVEN, 2, TRAIN),
    (GIVEN, 2, ("train", "runs/x", "--resume")),
    (GIVEN, 2, ("show", "runs/x", "2")),
    (GIVEN, 2, ("view", "runs/x", "-o", "page.html")),
    (GIVEN, 2, ("assign-credit", "runs/x", "--explain", "2:0")),
    (GIVEN, 2, ("credit", "compare", "runs/x", "grpo", "rloo")),
    (GIVEN, 2, ("export", "runs/x", "--to", "parquet", "-o", "rows.parquet")),
    (EPISODES, 3, EVAL),
    (EPISODES, 3, ("compare", EPISODES, "runs/votes/evaluation/pass-at-k-test.jsonl")),
    (SUMMARY, None, EVAL),
    (SUMMARY, None, ("show", "runs/x")),
    (SUMMARY, None, ("compare", EPISODES, "runs/votes/evaluation/pass-at-k-test.jsonl")),
    ("runs/x/settings/rollout.json", None, RESUMED),
    ("runs/loop/settings/run.json", None, (*EXISTING["run"], "--resume")),
]
"""A file, the line of its digit (None: any), and a command that reads it."""


def flip(line: bytes) -> bytes:
    """The line with another first digit of an advantage, a score or a seed."""
    changed, count = re.subn(rb'("(?:advantage|score|seed)": ?-?)\d', rb"\g<1>9", line, count=1)
    assert count == 1
    return changed


def flip_in(path: str, line: int | None) -> None:
    if line is None:
        edit(path, flip)()
        return
    edit_lines(path, lambda lines: [*lines[: line - 1], flip(lines[line - 1]), *lines[line:]])()


@pytest.mark.parametrize(("path", "line", "words"), READERS)
def test_a_changed_digit_is_refused_where_it_is_read(path: str, line: int | None, words: tuple[str, ...]) -> None:
    check(lambda: flip_in(path, line), words, 3, (f"{path}:{line or ''}", "manifest.json", "--overwrite"))


@pytest.mark.parametrize("path", sorted({path for path, _, _ in READERS}))
def test_validate_finds_a_changed_digit(path: str) -> None:
    line = next(line for name, line, _ in READERS if name == path)
    flip_in(path, line)
    answer = agentcli("validate", str(Path(path).parents[1]))
    (error,) = [text for text in answer.stderr.splitlines() if text.startswith("error: ")]
    assert answer.code == 3
    assert error.startswith(f"error: {path}:{line or ''}")


def test_a_changed_optimiser_is_refused_where_it_is_carried_on() -> None:
    weights = Path(OPTIMIZER).read_bytes()
    # The last bytes are those of a moment.
    Path(OPTIMIZER).write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    for words in (CARRY, (*CARRY[:-1], "runs/lora", "--overwrite")):
        before = sorted(Path().rglob("*"))
        answer = quietly(*words)
        refused(answer, 3, (OPTIMIZER, "byte 0"))
        assert sorted(Path().rglob("*")) == before
    assert f"error: {OPTIMIZER}: " in agentcli(*VALIDATE).stderr
    Path(OPTIMIZER).write_bytes(b"\7" * len(weights))
    assert f"error: {OPTIMIZER}: " in agentcli(*VALIDATE).stderr


def test_settings_that_are_none_are_found_in_any_run() -> None:
    write("runs/x/settings/train.json", "{{{")()
    without_checksums(Path("runs/x"))
    answer = agentcli(*VALIDATE)
    assert answer.code == 3
    assert ["error:", "runs/x/settings/train.json:"] in [line.split()[:2] for line in answer.stderr.splitlines()]


def test_what_the_manifest_does_not_know_is_read_and_named() -> None:
    """Credit by hand, and a run of an older agentcli."""
    assert "without a checksum" not in agentcli(*VALIDATE).stderr
    Path("runs/x/credit/mine.jsonl").write_bytes(Path(GIVEN).read_bytes())
    answer = agentcli(*VALIDATE)
    assert answer.code == 0
    for part in ("without a checksum", ": runs/x/credit/mine.jsonl;"):
        assert part in answer.stderr
    without_checksums(Path("runs/x"))
    flip_in(GIVEN, 2)
    answer = agentcli(*VALIDATE)
    assert (answer.code, answer.stderr.count("without a checksum")) == (0, 1)
    assert quietly(*TRAIN, "--credit", "grpo").code == 0


def test_a_page_of_an_older_run_names_the_file_whose_numbers_do_not_agree() -> None:
    flip_in(GIVEN, 2)
    without_checksums(Path("runs/x"))
    refused(quietly("view", "runs/x", "-o", "page.html"), 1, (GIVEN, "runs/x/trees.jsonl:2"))


def test_what_is_written_again_is_fine() -> None:
    flip_in(GIVEN, 2)
    flip_in(EPISODES, 3)
    for words in (("assign-credit", "runs/x"), EVAL[:-1]):
        assert quietly(*words, "--overwrite").code == 0
    answer = agentcli(*VALIDATE)
    assert answer.code == 0, answer.stderr
    assert "without a checksum" not in answer.stderr


def test_a_training_in_the_place_of_another_takes_its_checksums_away() -> None:
    """Both write metrics.jsonl; only the last one knows what is in it."""
    assert quietly("train", "runs/x", "-o", "runs/sft", "--model", "runs/x/checkpoint", "--overwrite").code == 0
    answer = agentcli("validate", "runs/sft")
    assert answer.code == 0, answer.stderr
    assert "without a checksum" not in answer.stderr
