"""A training where memory is short: fewer rows at a time, the same when it is resumed, or one line before a model is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcli.records.files import read_json
from agentcli.records.types import Manifest
from agentcli.stages import memory
from agentcli.stages.memory import PROCESS_BYTES
from agentcli.training.loop.trainer import Recorder
from bad_input_runs import START, folder
from command_line import agentcli, succeeded
from processes import well_ended
from refusal import refused
from shaped import SHAPES, model_of

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("folder")

SFT = ("sft", "runs/demos", "-c", "toy.yaml", "--model", START, "-o", "new")
TRAIN = ("train", "runs/x", "-o", "new")
TOKENS = ("--set", "sft.tokens_per_microbatch=512", "--set", "train.tokens_per_microbatch=512")
ROWS = {
    SFT: "samples_per_microbatch",
    TRAIN: "rows_per_microbatch",
    (*SFT, *TOKENS): "tokens_per_microbatch",
    (*TRAIN, *TOKENS): "tokens_per_microbatch",
}
"""The setting that each command's microbatches are limited by."""


def parts_of(words: tuple[str, ...]) -> dict[str, int]:
    answer = succeeded(*words, "--dry-run", "--json")
    parts: dict[str, int] = json.loads(answer.stdout)["expected"]["memory"]
    return parts


def leave(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], share: float) -> None:
    """Leaves all that a training holds besides activations, and this share of them."""
    parts = parts_of(words)
    activations = parts.pop("activations")
    free = round(sum(parts.values()) + share * activations)
    monkeypatch.setattr(memory, "free_memory", lambda: free)
    # The process is larger than a toy's activations; a tenth of it must not count.
    monkeypatch.setattr("agentcli.stages.memory.ROOM", 1.0)


def statistics(stage: str, run: str = "new") -> dict[str, Any]:
    return read_json(Path(run, "manifest.json"), Manifest).stages[stage].statistics


@pytest.mark.parametrize("words", ROWS)
def test_where_everything_fits_nothing_is_said_or_changed(words: tuple[str, ...]) -> None:
    done = succeeded(*words)
    assert ROWS[words] not in done.stderr
    assert ROWS[words] not in statistics(words[0])


@pytest.mark.parametrize("words", ROWS)
def test_fewer_rows_where_memory_is_short(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    leave(monkeypatch, words, 0.5)
    done = succeeded(*words)
    chosen = statistics(words[0])[ROWS[words]]
    asked = read_json(Path("new/manifest.json"), Manifest).stages[words[0]].settings[words[0]][ROWS[words]]
    assert 1 <= chosen < asked
    assert asked % chosen == 0
    (line,) = [line for line in done.stderr.splitlines() if "in place of" in line]
    assert f"{words[0]}.{ROWS[words]}: {chosen} in place of {asked}" in line


@pytest.mark.parametrize("words", ROWS)
def test_what_cannot_fit_is_refused_before_the_model_is_loaded(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(monkeypatch, words, 0.0)
    refused(agentcli(*words, "-q"), 2, f"{words[0]}: needs", "--lora 16")
    assert not Path("new").exists()


def test_a_dry_run_names_the_number_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    leave(monkeypatch, SFT, 0.5)
    planned = json.loads(agentcli(*SFT, "--dry-run", "--json").stdout)["expected"]
    assert planned["change"].endswith(" sft.samples_per_microbatch=8")
    assert planned["free_bytes"] == memory.free_memory()
    # What is named is accepted.
    assert agentcli(*SFT, "--set", "sft.samples_per_microbatch=8").code == 0


class Killed(BaseException):
    """Ends a training like a signal."""


@pytest.mark.parametrize("words", ROWS)
def test_a_resumed_training_takes_the_number_that_it_was_begun_with(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although all memory is free by then; and the bytes are those of a training that was never stopped."""
    section, name = words[0], ROWS[words]
    words = (*words, "--set", f"{section}.save_every_updates=1")
    if section == "train":
        words = (*words, "--set", "train.epochs=3")
    record = Recorder.record

    def killed(self: Recorder[Any], update: int, *given: Any) -> None:
        record(self, update, *given)
        if update == 2:
            raise Killed

    with monkeypatch.context() as short:
        leave(short, words, 0.5)
        assert agentcli(*words, "-o", "whole").code == 0
        short.setattr(Recorder, "record", killed)
        with pytest.raises(Killed):
            agentcli(*words)
    assert Path("new/snapshot").exists()
    done = succeeded(*words, "--resume")
    assert "as it was begun" in done.stderr
    assert statistics(section)[name] == statistics(section, "whole")[name]
    weights = "checkpoint/model.safetensors"
    assert Path("new", weights).read_bytes() == Path("whole", weights).read_bytes()
    assert "nothing is owed" in agentcli(*words, "--resume").stderr


LIMITED = """
import pathlib, re, resource, sys
import agentcli.training.imitation
from agentcli.cli.app import main
size = re.search("VmSize:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())
limit = 1024 * int(size[1]) + int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
main()
"""
"""A command that may take so many bytes more than the process has when all is imported."""


@pytest.mark.slow
def test_a_real_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """For activations the process may take an eighth of what the rows asked for have."""
    model_of({**SHAPES["narrow"], "hidden_size": 16, "vocab_size": 320_000}, Path(START), Path("model"))
    words = tuple("model" if word == START else word for word in SFT)
    parts = parts_of(words)
    assert parts["activations"] > 2 * PROCESS_BYTES
    allowed = sum(parts.values()) - parts["activations"] * 7 // 8
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    well_ended("-c", LIMITED, str(allowed), *words)
    assert statistics("sft")["samples_per_microbatch"] < 16
