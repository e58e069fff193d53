"""WebShop under kill -9: of its engine process at every step, and of the command at ten moments."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from agentcli.environments.engines.pool import EnginePool, State
from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from processes import as_here, kill, workers

pytestmark = pytest.mark.slow

SETTINGS = EnvironmentSettings(name="webshop", options={"products": 100})
NOISE = ("click[nothing]", "sing", "search[rug]", "click[next >]", "click[back to search]", "search[]")
WORDS = ("--env", "webshop", "--policy", "search", "--tasks", "10", "--leaves", "1", "-q")


async def shopped(pool: EnginePool, state: State, actions: list[str], moment: int | None) -> list[object]:
    """What is observed, with a kill before one of the steps."""
    observed: list[object] = [state.observation]
    for number, action in enumerate(actions):
        if number == moment:
            (worker,) = workers()
            kill(worker)
        state = await pool.step(state, action)
        observed.append(state.observation)
    return observed


def test_kills_of_the_engine_change_nothing() -> None:
    async def body() -> None:
        task = make_world(SETTINGS).tasks("test")[0]
        async with EnginePool(SETTINGS) as pool:
            start = await pool.start(task)
            actions = [*NOISE, *await pool.plan(start)]
            undisturbed = await shopped(pool, start, actions, None)
            assert undisturbed[-1].end == "success"  # type: ignore[attr-defined]
            assert len(actions) >= 10
            for moment in range(len(actions)):
                assert await shopped(pool, await pool.start(task), actions, moment) == undisturbed
            assert pool.retries == len(actions)

    asyncio.run(body())


def test_a_rollout_that_is_killed_at_ten_moments_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    whole = subprocess.run(
        [sys.executable, "-m", "agentcli", "rollout", *WORDS, "-o", "whole"], cwd=tmp_path, env=as_here()
    )
    assert whole.returncode == 0
    trees = (tmp_path / "whole" / "trees.jsonl").read_bytes()
    command = [sys.executable, "-m", "struck", "rollout", *WORDS, "-o", "cut", "--resume"]
    moments = "".join(f"{number}\n" for number in (1, 2, 3, 4, 5, 6, 8, 10, 12, 14))
    cut = subprocess.run(command, cwd=tmp_path, env=as_here(), input=moments, text=True, capture_output=True)
    assert cut.stdout.split() == ["-9"] * 10
    subprocess.run([sys.executable, "-m", "agentcli", *command[3:]], cwd=tmp_path, env=as_here(), check=True)
    assert (tmp_path / "cut" / "trees.jsonl").read_bytes() == trees
