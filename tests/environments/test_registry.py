"""Worlds by name."""

import msgspec
import pytest
from agentcli.environments import registry
from agentcli.environments.registry import make_engine, make_world, tasks_of, world_names
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from refusal import refused
from toy_world import ToyWorld


def test_a_class_named_in_full_is_made_from_its_settings() -> None:
    world = make_world(EnvironmentSettings(name="toy_world:ToyWorld", options={"tasks": 3}))
    assert isinstance(world, ToyWorld)
    assert len(world.tasks("train")) == 3


def test_the_names_are_the_built_in_worlds_and_those_of_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "alfworld" in world_names()
    monkeypatch.setitem(registry.WORLDS, "abc", "toy_world:ToyWorld")
    assert world_names()[0] == "abc"


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("alfwrold", ("alfwrold", "alfworld")),
        ("xyz", ("xyz", "alfworld", "webshop")),
        ("toy_wrold:ToyWorld", "toy_wrold"),
        ("toy_world.deeper:ToyWorld", "toy_world.deeper"),
        ("toy_world:Toy", ("toy_world", "Toy")),
        ("toy_world:", "toy_world"),
        (":Toy", ":Toy"),
    ],
)
def test_unknown_names_are_usage_errors(name: str, names: str | tuple[str, ...]) -> None:
    refused(lambda: make_world(EnvironmentSettings(name=name)), names=names)


@pytest.mark.parametrize("name", registry.WORLDS)
def test_an_unknown_split_is_refused(name: str) -> None:
    world = make_world(EnvironmentSettings(name=name))
    near = f"{world.card.splits[0]}s"
    refused(lambda: tasks_of(world, name, near), names=(f"--split {near}", name), remedy=world.card.splits[0])


@pytest.mark.parametrize("tasks", [None, ["a"], [Task(id="a", world="toy", split="train", kind="walk")] * 2])
def test_tasks_that_are_none_or_alike_are_refused(tasks: object, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(EnvironmentSettings(name="toy_world:ToyWorld"))
    monkeypatch.setattr(ToyWorld, "tasks", lambda self, split: tasks)
    refused(lambda: tasks_of(world, "toy", "train"), names=("--split train", "toy"))


@pytest.mark.parametrize("name", ["sokoban", "toy_world:ToyWorld"])
def test_a_folder_that_the_world_would_not_read_is_refused(name: str) -> None:
    refused(lambda: make_world(EnvironmentSettings(name=name, data="folder")), names=("data", name), remedy="--data")


def test_a_card_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyWorld, "card", {"name": "toy"})
    refused(lambda: make_world(EnvironmentSettings(name="toy_world:ToyWorld")), names=("environment.name", "ToyWorld"))


def test_a_missing_dependency_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.WORLDS, "toy", "toy_world:ToyWorld")
    monkeypatch.setattr(ToyWorld, "card", msgspec.structs.replace(ToyWorld.card, extra="toy"))
    world = make_world(EnvironmentSettings(name="toy", options={"setup_fault": "missing"}))
    refused(lambda: make_engine(world, "toy"), 4, names="corridors", remedy="pip install 'agentcli[toy]'")
