"""The parts and levels of the papers, and the simulator's own count of its variations."""

from collections import Counter

import pytest
from agentcli.worlds.scienceworld.engine import ALL, LEVELLED, NEW, SPLITS, VARIATIONS, variations
from agentcli.worlds.scienceworld.world import ScienceWorldWorld

SIZES = {
    "train": 3322,
    "L0-train": 3322,
    "L0": 1661,
    "L1-train": 3322,
    "L1": 1684,
    "L2-train": 2242,
    "L2": 549,
    "all": 7207,
}


def test_sizes_are_the_papers(world: ScienceWorldWorld) -> None:
    assert {split: len(world.tasks(split)) for split in SPLITS} == SIZES
    assert set(world.card.meanings) == set(SPLITS) - {"train"}


def test_levels_share_no_task_with_their_training(world: ScienceWorldWorld) -> None:
    ids = {split: {task.id for task in world.tasks(split)} for split in SPLITS}
    for level in ("L0", "L1", "L2"):
        assert not ids[level] & ids[f"{level}-train"]
    assert ids["L2"] < ids["L1"]
    kinds = {split: {task.kind for task in world.tasks(split)} for split in SPLITS}
    assert kinds["L2"] == set(NEW)
    assert kinds["L2-train"] == set(LEVELLED) - set(NEW)
    assert "use-thermometer" not in kinds["train"] | kinds["L0"] | kinds["L1"]


def test_the_first_tasks_of_a_panel_are_of_all_kinds(world: ScienceWorldWorld) -> None:
    first = Counter(task.kind for task in world.tasks("L0")[: len(LEVELLED)])
    assert first == dict.fromkeys(LEVELLED, 1)


def test_the_table_is_the_simulators(world: ScienceWorldWorld) -> None:
    interface = world.simulator._interface()
    assert {name: interface.getTaskMaxVariations(name) for name in interface.getTaskNames()} == VARIATIONS


@pytest.mark.parametrize("kind", ALL)
def test_parts_cover_every_variation_once(kind: str) -> None:
    parts = [*variations(kind, "train"), *variations(kind, "dev"), *variations(kind, "test")]
    assert parts == list(range(VARIATIONS[kind]))
