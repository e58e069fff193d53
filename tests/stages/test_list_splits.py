"""The list of splits counts tasks and says what levels mean."""

import pytest
from agentcli.environments.registry import world_names
from agentcli.stages.environment import list_splits
from agentcli.worlds.alfworld.world import SPLITS


def test_levels_are_explained() -> None:
    rows = {(row.world, row.split): row for row in list_splits(world_names(), pytest.fail)}
    assert [split for world, split in rows if world == "alfworld"] == list(SPLITS)
    for split in SPLITS:
        assert rows["alfworld", split].meaning or split == "train"


def test_l2_is_a_part_of_l1() -> None:
    tasks = {row.split: row.tasks for row in list_splits(world_names(), pytest.fail) if row.world == "alfworld"}
    assert tasks["L2"] < tasks["L1"] == tasks["valid_unseen"]
    assert tasks["L2-train"] < tasks["train"] == tasks["L0-train"]
