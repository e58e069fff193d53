"""`agentcli env new`: what it writes works as it is, and it replaces nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import agentcli
from processes import as_here
from refusal import refused

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_a_new_world_and_its_test_work_as_they_are() -> None:
    made = agentcli("env", "new", "two_doors")
    assert (made.code, made.stdout.split()) == (0, ["two_doors.py", "test_two_doors.py"])
    assert "new_world" not in Path("two_doors.py").read_text() + Path("test_two_doors.py").read_text()
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_two_doors.py"]
    done = subprocess.run([sys.executable, *words], env=as_here(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "8 passed" in done.stdout
    rollout = ("rollout", "--env", "two_doors.py:TwoDoors", "--policy", "expert", "--tasks", "2", "-q")
    assert agentcli(*rollout, "-o", "runs/x").code == 0


@pytest.mark.parametrize(
    "name", ["Two", "two-doors", "2doors", "class", "", "a/b", "json", "sokoban", "sys", "task", "path", "observation"]
)
def test_a_bad_name_is_refused(name: str) -> None:
    refused(agentcli("env", "new", name), names=name)
    assert os.listdir() == []


@pytest.mark.parametrize("reward", ['float("nan")', "1e308", "-1e10"])
def test_a_reward_that_no_file_can_hold_is_a_fault_of_the_world(reward: str) -> None:
    agentcli("env", "new", "two_doors")
    world = Path("two_doors.py")
    text = world.read_text()
    assert text.count("reward=1.0") == 1
    world.write_text(text.replace("reward=1.0", f"reward={reward}"))
    rollout = ("rollout", "--env", "two_doors.py:TwoDoors", "--policy", "expert", "--tasks", "2", "-q")
    refused(agentcli(*rollout, "-o", "runs/x"), code=1, names=("the world failed", "reward"))
    assert agentcli("validate", "runs/x").code == 0


@pytest.mark.parametrize("name", ["doors.py", "test_doors.py"])
def test_no_file_is_replaced(name: str) -> None:
    Path(name).write_text("mine")
    refused(agentcli("env", "new", "doors"), names=name, remedy="another NAME")
    assert os.listdir() == [name]
    assert Path(name).read_text() == "mine"
