"""What the world new_world promises, in the folder of new_world.py."""

import subprocess
import sys
from pathlib import Path

import pytest
from new_world import NewWorld

from agentcli.environments.protocol import Observation
from agentcli.records.settings import EnvironmentSettings

FOLDER = Path(__file__).parent
WORLD = NewWorld(EnvironmentSettings(name="new_world"))


def played(index: int, actions: list[str]) -> list[Observation]:
    """The observations of a training task after each of the actions."""
    engine = WORLD.engine()
    engine.start(WORLD.tasks("train")[index])
    return [engine.step(action) for action in actions]


@pytest.mark.parametrize("index", range(5))
def test_the_plan_wins(index: int) -> None:
    """The expert earns the full reward."""
    engine = WORLD.engine()
    engine.start(WORLD.tasks("train")[index])
    last = played(index, engine.plan())[-1]
    assert (last.end, last.reward) == ("success", 1.0)


def test_the_same_actions_give_the_same_answers() -> None:
    """A replay is exact."""
    actions = ["1", "2", "dance"]
    assert played(0, actions) == played(0, actions)


def test_what_is_impossible_changes_nothing() -> None:
    """The episode goes on."""
    (answer,) = played(0, ["dance"])
    assert not answer.accepted
    assert answer.end is None


def test_env_check_passes() -> None:
    """It plays, replays and forks some tasks."""
    words = ["-m", "agentcli", "env", "check", "new_world.py:NewWorld", "--tasks", "3"]
    subprocess.run([sys.executable, *words], cwd=FOLDER, check=True)
