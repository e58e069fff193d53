"""The official data layout: the loader's own rules, a fixed order, one clear line when there is nothing to read."""

import json
import shutil
from pathlib import Path

import pytest
from agentcli.records.settings import EnvironmentSettings
from agentcli.worlds.alfworld import dataset, generator
from agentcli.worlds.alfworld.search import entities
from agentcli.worlds.alfworld.world import AlfworldWorld
from alfworld_games import game_cache, small_world  # noqa: F401
from refusal import refused


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder in the official layout with 6 train, 3 seen and 8 unseen games."""
    world = small_world(games={"train": 6, "valid_seen": 3, "valid_unseen": 8})
    for split in ("train", "valid_seen", "valid_unseen"):
        for task in world.tasks(split):
            generator.make(task.id, world.options, tmp_path)
    dataset.list_games.cache_clear()
    return tmp_path


def opened(data: Path) -> AlfworldWorld:
    return AlfworldWorld(EnvironmentSettings(data=str(data)))


def test_a_real_folder_is_read_unchanged(data: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in sorted(data.rglob("*"))}
    world = opened(data)
    generated = small_world(games={"train": 6, "valid_seen": 3, "valid_unseen": 8})
    for split in world.card.splits:
        assert [task.id for task in world.tasks(split)] == [task.id for task in generated.tasks(split)]
    for task in world.tasks("train"):
        assert world.locate(task) == data / "json_2.1.1" / task.id / "game.tw-pddl"
    assert {path: path.stat().st_mtime_ns for path in sorted(data.rglob("*"))} == before


def test_the_variable_names_the_folder_and_the_setting_wins(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(data))
    assert AlfworldWorld(EnvironmentSettings()).data == data
    other = data.parent / "other"
    (other / "json_2.1.1").mkdir(parents=True)
    assert opened(other).data == other


def test_the_loaders_rules(data: Path) -> None:
    folders = sorted(path.parent for path in (data / "json_2.1.1" / "train").rglob("game.tw-pddl"))
    unsolvable, gameless, undescribed, unmarked, *good = folders
    for folder, change in ((unsolvable, {"solvable": False}), (unmarked, {"solvable": None})):
        game = json.loads((folder / "game.tw-pddl").read_text())
        (folder / "game.tw-pddl").write_text(json.dumps(game | change))
    (gameless / "game.tw-pddl").unlink()
    (undescribed / "traj_data.json").unlink()
    train = data / "json_2.1.1" / "train"
    for name in (
        "pick_and_place_with_movable_recep-Mug-Bowl-Desk-301",
        "pick_and_place_simple-AppleSliced-None-Fridge-2",
    ):
        shutil.copytree(good[0], train / name / "trial_x")
    assert [task.id for task in opened(data).tasks("train")] == sorted(
        (str(folder.relative_to(data / "json_2.1.1")) for folder in good), key=lambda name: name.rsplit("/", 1)[1]
    )
    assert len(good) == 2


def test_levels_of_a_real_folder(data: Path) -> None:
    world = opened(data)
    unseen = world.tasks("valid_unseen")
    late = {"pick_cool_then_place_in_recep", "pick_two_obj_and_place"}
    assert world.tasks("L2") == [task for task in unseen if task.kind in late]
    assert 0 < len(world.tasks("L2")) < len(unseen)
    assert not any(task.kind in late for task in world.tasks("L2-train"))


def test_a_folder_without_games_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(lambda: opened(tmp_path), 3, names=("--data", "json_2.1.1"))
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    refused(lambda: AlfworldWorld(EnvironmentSettings()), 3, names=("ALFWORLD_DATA", "json_2.1.1"))
    (tmp_path / "json_2.1.1" / "train").mkdir(parents=True)
    refused(lambda: opened(tmp_path).tasks("train"), 3, str(tmp_path))


def test_the_empty_folder_that_alfworld_makes_is_no_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / ".cache" / "alfworld"))
    assert AlfworldWorld(EnvironmentSettings()).data is None


def test_broken_files_and_names_are_named(data: Path) -> None:
    trial = next((data / "json_2.1.1" / "train").rglob("game.tw-pddl"))
    text = trial.read_text()
    trial.write_text(text[:100])
    refused(lambda: opened(data).tasks("train"), 3, names="game.tw-pddl")
    trial.write_text(text)
    trial.parent.parent.rename(trial.parent.parent.with_name("my-own-name"))
    refused(lambda: opened(data).tasks("train"), 3, names="my-own-name")


def test_vocabulary_of_a_real_folder(data: Path) -> None:
    found = entities(opened(data).options, data)
    game = json.loads(next((data / "json_2.1.1" / "valid_seen").rglob("game.tw-pddl")).read_text())
    words = {word for action in game["walkthrough"] if action.startswith("go to ") for word in [action[6:]]}
    assert words <= set(found)
    assert found == sorted(set(found))
