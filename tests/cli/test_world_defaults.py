"""What a command leaves to the world is what the world's card says: the split, the evaluation's split and the dialect."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcli.environments.registry import settle
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import EvaluationSettings, Settings
from command_line import agentcli, succeeded

WORLD = """
from toy_world import ToyWorld

from agentcli.environments.protocol import Card


class Turned(ToyWorld):
    card = Card(
        name="turned", role="You walk.", splits=("train", "test"), split="test", evaluation_split="train", dialect="react"
    )
"""
TURNED = ("--env", "turned.py:Turned", "--policy", "random")


@pytest.fixture(autouse=True)
def folder(empty_folder: Path) -> None:
    Path("turned.py").write_text(WORLD, encoding="utf-8")


def planned(*words: str) -> dict[str, Any]:
    """The resolved settings of a dry run."""
    answer = succeeded(*words, "--dry-run", "--json")
    settings: dict[str, Any] = json.loads(answer.stdout)["settings"]
    return settings


def left_to_the_world(settings: dict[str, Any]) -> tuple[str, str, str]:
    return settings["environment"]["split"], settings["evaluation"]["split"], settings["prompt"]["style"]


@pytest.mark.parametrize(
    ("words", "resolved"),
    [
        (("--policy", "random"), ("train", "L0", "full")),
        (("--policy", "random", "--env", "sokoban"), ("train", "test", "full")),
        (TURNED, ("test", "train", "react")),
        ((*TURNED, "--split", "train", "--set", "prompt.style=full"), ("train", "train", "full")),
        ((*TURNED, "--set", "evaluation.split=test"), ("test", "test", "react")),
    ],
)
def test_a_dry_run_shows_what_the_world_says(words: tuple[str, ...], resolved: tuple[str, str, str]) -> None:
    assert left_to_the_world(planned("rollout", *words)) == resolved


def test_stages_walk_the_worlds_splits_and_record_them() -> None:
    assert agentcli("rollout", *TURNED, "--leaves", "1", "--tasks", "2", "-o", "x").code == 0
    assert agentcli("eval", *TURNED, "--set", "evaluation.tasks=2", "-o", "x").code == 0
    stages = RunDirectory(Path("x")).load_manifest().stages
    assert [stages[name].panel_name for name in ("rollout", "evaluation/train")] == ["test", "train"]
    for stage in stages.values():
        assert stage.settings["prompt"]["style"] == "react"
    assert agentcli("rollout", *TURNED, "--leaves", "1", "--tasks", "2", "-o", "x", "--resume").code == 0


def test_settings_that_leave_nothing_open_need_no_world() -> None:
    """A run that is read where its world is not installed."""
    settings = Settings(evaluation=EvaluationSettings(split="test"))
    settings.environment.name = "nowhere:World"
    settings.environment.split = "train"
    settings.prompt.style = "full"
    assert settle(settings) is settings


def test_a_command_that_plays_no_world_needs_none() -> None:
    """assign-credit reads files alone, also where the world cannot be imported."""
    assert agentcli("rollout", *TURNED, "--leaves", "2", "--tasks", "2", "-o", "x").code == 0
    Path("turned.py").unlink()
    succeeded("assign-credit", "x", "--method", "grpo")
