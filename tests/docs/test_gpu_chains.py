"""The chains of docs/guides/gpu.md, typed in their order with a tiny model on the CPU in the place of a paper's preset and model.

A block of the page whose mark names this file is typed here.
"""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from agentcli.training.loop import checkpoints
from bad_input_runs import START, folder
from command_line import agentcli, succeeded
from rounded import load_rounded
from typed_pages import ROOT, commands
from typed_pages import blocks as blocks_of

__all__ = ["folder"]

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.slow]

INSTEAD = {"spark-alfworld": "./tiny.yaml", "120": "2", "L0": "test"}
"""What is typed in the place of a word of the page."""
ITSELF = ("preset", "show")
"""The beginning of the command that is typed as it stands."""


def typed_here() -> list[list[list[str]]]:
    """The commands of each block that is typed here, without those under torchrun."""
    found = []
    for block in blocks_of(ROOT / "docs/guides/gpu.md"):
        if Path(__file__).name in block.marks.get("not typed", ""):
            found.append([words[1:] for words in commands(block) if words[0] == "agentcli"])
    return found


SETTINGS_BLOCK, PRESET_BLOCK = typed_here()


def ends_well(words: list[str]) -> None:
    if tuple(words[:2]) != ITSELF:
        words = [INSTEAD.get(word, word) for word in words]
    succeeded(*words)


def first_line(run: str) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(Path(run, "metrics.jsonl").read_text().splitlines()[0])
    return line


@pytest.fixture
def rounded_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """A base in 4 bits, as far as the CPU has it: its layers compute in bfloat16."""
    for section in ("SFT", "TRAIN"):
        monkeypatch.setenv(f"AGENTCLI_{section}__LORA__BITS", "4")
    monkeypatch.setattr(checkpoints, "check_bits", lambda lora: None)
    monkeypatch.setattr(checkpoints, "own_gpu", lambda: "cpu")
    monkeypatch.setattr(checkpoints, "load_quantised", load_rounded)


def type_preset_block(packing: str) -> None:
    """Types the chain with a preset like the paper's, whose model is full and lies in `start`."""
    shutil.copytree(START, "start")
    shutil.rmtree("runs")
    own = (
        f"sft: {{model: start, packing: {packing}, updates: 4}}\ntrain: {{learning_rate: 1.0e-3, packing: {packing}}}\n"
    )
    kept = [line for line in Path("toy.yaml").read_text().splitlines() if not line.startswith(("sft:", "train:"))]
    Path("tiny.yaml").write_text("\n".join([*kept, own]))
    for words in PRESET_BLOCK:
        ends_well(words)
    adapters = {Path("runs/sft/checkpoint"), *Path("runs/rl").glob("iteration_*/checkpoint")}
    assert len(adapters) == 3
    for adapter in adapters:
        assert json.loads((adapter / "adapter_config.json").read_bytes())["r"] == 16


def test_a_paper_s_preset_from_demonstrations_to_its_evaluation() -> None:
    type_preset_block("auto")


@pytest.mark.usefixtures("rounded_base")
def test_the_same_over_a_base_in_4_bits_with_packing() -> None:
    type_preset_block("on")
    ends_well(["rollout", "--preset", "./tiny.yaml", "--model", "runs/sft/checkpoint", "-o", "runs/y"])
    ends_well(["assign-credit", "runs/y"])
    ends_well(["train", "runs/y"])


def test_settings_for_speed_and_memory_change_nothing_but_rounding() -> None:
    runs = []
    for words in SETTINGS_BLOCK:
        if "train.optimizer=adamw_8bit" in words and find_spec("bitsandbytes") is None:
            assert agentcli(*words).code == 4
            continue
        ends_well(words)
        runs.append(words[words.index("-o") + 1])
    plain, *others = [first_line(run) for run in runs]
    assert len(others) >= 2
    for other in others:
        for name in ("loss", "grad_norm"):
            assert other[name] == pytest.approx(plain[name], rel=1e-4, abs=1e-6)
