"""Runs as trainings leave them: demonstrations, a policy that imitates them, and a loop that started from it."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from agentcli.records.files import write_json
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.stages.plan import with_changes
from safetensors.numpy import save_file
from sample_records import evaluation, stage_record

DEMOS, SFT, LOOP = Path("runs/demos"), Path("runs/sft"), Path("runs/rl")


def record(run: Path, stage: str, command: str, minute: int, **changes: Any) -> None:
    """Notes in the manifest of `run` that a stage ended there."""
    sections = changes.pop("sections", {})
    done = stage_record()
    done.command = command.split()
    done.started = f"2026-01-01T00:{minute:02d}:00+00:00"
    done.inputs = {}
    done.settings = msgspec.to_builtins(with_changes(Settings(credit={"method": "rewardflow"}), **sections))
    for name, value in changes.items():
        setattr(done, name, value)
    RunDirectory(run).record_stage(stage, done)


def make_trained_runs(start: str = "tiny") -> Path:
    """Makes the three runs in the working folder, the first model being `start`; returns the loop."""
    record(DEMOS, "demos", "agentcli demos --preset quickstart -o runs/demos", 0)
    trees = {f"{DEMOS}/trees.jsonl": "0" * 64}
    sft = f"agentcli sft {DEMOS} --model {start} -o {SFT}"
    record(SFT, "sft", sft, 1, inputs=trees, sections={"sft": {"model": start}})
    loop = f"agentcli run --preset quickstart --model {SFT}/checkpoint -o {LOOP}"
    model = {"policy": {"model": f"{SFT}/checkpoint"}}
    record(LOOP, "run", loop, 2, sections=model, counts={"iterations": 3})
    record(LOOP, "evaluation/L0", f"agentcli eval {LOOP} --data /home/me/alfworld", 3)
    write_json(LOOP / "evaluation/L0.json", evaluation())
    for run in (SFT, LOOP):
        (run / "checkpoint").mkdir()
        (run / "checkpoint/config.json").write_text("{}", encoding="utf-8")
        save_file({"weight": np.arange(64.0)}, run / "checkpoint/model.safetensors")
    return LOOP
