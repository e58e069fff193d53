"""The recipe for MiniGrid and BabyAI: what the agent sees in words, and the bot's plans. It needs the extra minigrid."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from agentcli.environments.protocol import Engine, Solvable
from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task

pytest.importorskip("minigrid", reason="pip install 'agentcli[minigrid]'")

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Its settings of the environment; the working folder is that of the examples."""
    monkeypatch.chdir(EXAMPLES)
    return yaml.safe_load((EXAMPLES / "minigrid.yaml").read_text(encoding="utf-8"))["environment"]


def opened(recipe: dict[str, Any], seed: int) -> tuple[Engine, list[str]]:
    engine = make_world(EnvironmentSettings(name=recipe["name"], options=recipe["options"])).engine()
    task = Task(id=f"train/{seed}", world=recipe["name"], split="train", kind="episode")
    return engine, engine.start(task).observation.text.splitlines()


@pytest.mark.parametrize("seed", range(5))
def test_the_bot_wins_also_after_a_step_of_another(recipe: dict[str, Any], seed: int) -> None:
    engine, _ = opened(recipe, seed)
    assert isinstance(engine, Solvable)
    engine.step("left")
    last = [engine.step(action) for action in engine.plan()][-1]
    assert last.end == "success"
    assert last.reward > 0


def test_the_text_names_what_is_seen_from_the_agent_s_place(recipe: dict[str, Any]) -> None:
    engine, lines = opened(recipe, 3)
    assert lines[:2] == ["go to the red key", "carrying nothing"]
    things = [line for line in lines[2:] if not line.startswith("wall")]
    assert things
    name, _, way = things[0].partition(" ahead ")
    nearer = engine.step("forward").text.splitlines()
    ahead, _, side = way.partition(" ")
    assert f"{name} ahead {int(ahead) - 1}{side and ' '}{side}" in nearer
