"""Settings that an older version recorded are read under their names of today."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.records.files import write_json
from agentcli.records.older import renamed
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.training_settings import TrainSettings
from agentcli.records.types import Manifest
from agentcli.stages.layers import resolve
from refusal import refused
from sample_records import stage_record

DPO = {"beta": 0.3, "pairs_per_task": 8, "max_length": 9}


def recorded(objective: str) -> dict[str, Any]:
    """Settings as they were recorded while train.dpo stood beside the objective's options."""
    settings: dict[str, Any] = msgspec.to_builtins(Settings(train=TrainSettings(objective=objective)))
    settings["train"]["dpo"] = DPO
    return settings


@pytest.mark.parametrize(("objective", "options"), [("policy-gradient", {}), ("dpo", DPO)])
def test_the_settings_of_dpo_are_its_options(objective: str, options: dict[str, Any], tmp_path: Path) -> None:
    record = stage_record()
    record.settings = recorded(objective)
    write_json(tmp_path / "manifest.json", Manifest(stages={"train": record}))
    read = RunDirectory(tmp_path).load_manifest().stages["train"].settings
    assert "dpo" not in read["train"]
    assert resolve(base=read).train == TrainSettings(objective=objective, options=options)


@pytest.mark.parametrize("train", [1, "dpo", {"dpo": 3, "objective": "dpo"}])
def test_what_is_damaged_stays_damaged(train: Any) -> None:
    refused(lambda: resolve(base=renamed({"train": train})), 3, names=("recorded settings", "train"))
