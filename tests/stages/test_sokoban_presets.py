"""The papers' presets of Sokoban: RewardFlow Table 8, pictures, and where every value comes from."""

import re
import shlex
from pathlib import Path

import pytest
from agentcli.credit.registry import make as make_credit
from agentcli.environments.registry import make_world
from agentcli.stages.layers import find_preset, resolve
from command_line import succeeded

OF_002 = ("rewardflow-sokoban", "gigpo-sokoban", "grpo-sokoban", "rloo-sokoban")


def text_of(name: str) -> str:
    return find_preset(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", OF_002)
def test_002_table_8(name: str) -> None:
    """Column Sokoban."""
    settings = resolve(name, [], {}, [], {})
    sizes = (settings.rollout.tasks_per_step, settings.train.rows_per_update, settings.environment.max_steps)
    assert sizes == (16, 256, 15)
    policy = settings.policy
    assert (policy.max_prompt_tokens, policy.max_tokens, policy.temperature) == (1024, 512, 0.4)
    assert (settings.run.iterations, settings.train.learning_rate, settings.train.beta) == (100, 1e-6, 0.01)
    assert (settings.rollout.leaves, settings.rollout.method, settings.train.aggregate) == (8, "chain", "step")
    own = {"rewardflow": {"gamma": 0.9, "alpha_action": 1.0, "alpha_traj": 1.0}, "gigpo": {"gamma": 0.95, "w": 1.0}}
    method, _, switches = make_credit(settings.credit)
    assert name == f"{method}-sokoban"
    for switch, value in {"invalid_penalty": 0.1, "success_reward": 1.0, **own.get(method, {})}.items():
        assert getattr(switches, switch) == value


@pytest.mark.parametrize("name", OF_002)
def test_the_room_is_a_picture_of_six_by_six_cells_with_one_box(name: str) -> None:
    settings = resolve(name, [], {}, [], {})
    world = make_world(settings.environment)
    task = world.tasks("train")[0]
    observation = world.engine().start(task).observation
    assert task.attributes == {"size": "6", "boxes": "1"}
    assert len(observation.pictures) == 1
    assert observation.actions == ("up", "down", "left", "right")
    assert settings.rollout.tasks_per_step * settings.run.iterations <= len(world.tasks("train"))


@pytest.mark.parametrize("name", OF_002)
def test_every_value_says_where_it_comes_from(name: str) -> None:
    header, _, body = text_of(name).partition("\n\n")
    assert re.search(r"^# Settings: RewardFlow, Table 8, .*Sokoban", header, re.MULTILINE)
    assert re.search(r"^# Result: .*RewardFlow Table 1: 3B \d\.\d / \d+\.\d, 7B \d\.\d / \d+\.\d", header, re.MULTILINE)
    for line in body.splitlines():
        key, _, value = line.strip().partition(": ")
        if value and key not in ("name", "method") and (key, value) != ("split", "train"):
            assert re.match(r"RewardFlow |not named", value.partition("# ")[2]), line


@pytest.mark.parametrize("name", OF_002)
def test_its_commands_are_accepted(name: str, empty_folder: Path) -> None:
    """As typed, but for --dry-run; the one that evaluates names what was trained."""
    commands = re.findall(r"^#   agentcli (.+)$", text_of(name), re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command)
        if "--model" not in words:
            words += ["--preset", name, "--model", "Qwen/Qwen2.5-VL-3B-Instruct"]
        succeeded(*words, "--dry-run")
