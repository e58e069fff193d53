"""Games in the engine pool: forks, lost processes, kills at any moment; no Java process is left behind."""

import asyncio
import contextlib
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from agentcli.environments.engines.pool import EnginePool, State
from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from processes import SECONDS, as_here, kill, workers

SETTINGS = EnvironmentSettings(name="scienceworld", options={"heap_mb": 256})
ACTIONS = (
    "go to greenhouse",
    "open bee hive",
    "wait1",
    "go to outside",
    "look around",
    "wait1",
    "inventory",
    "go to kitchen",
)


def child_of(pid: int) -> int:
    """The first child of a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0])


def java_processes(folder: Path) -> list[int]:
    """The simulators whose private folder is below this one."""
    running = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and folder in Path(os.readlink(entry / "cwd")).parents:
                running.append(int(entry.name))
        except OSError:
            continue
    return running


def all_end(folder: Path) -> bool:
    """Whether no simulator below this folder goes on; one that was killed may take its time on a busy machine."""
    for pid in java_processes(folder):
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            ended = select.select([handle], [], [], SECONDS)[0]
            os.close(handle)
            if not ended:
                return False
    return java_processes(folder) == []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


async def played(pool: EnginePool, state: State, kills: dict[int, str]) -> list[object]:
    """What is observed, with kills before some steps."""
    observed: list[object] = [state.observation]
    for number, action in enumerate(ACTIONS):
        if number in kills:
            (worker,) = workers()
            kill(child_of(worker) if kills[number] == "java" else worker)
        state = await pool.step(state, action)
        observed.append(state.observation)
    return observed


def test_a_fork_replays_and_goes_the_same_way(folder: Path) -> None:
    async def body() -> None:
        async with EnginePool(SETTINGS) as pool:
            task = make_world(SETTINGS).tasks("train")[9]
            root = await pool.start(task)
            one = await pool.step(await pool.step(root, ACTIONS[0]), ACTIONS[1])
            first = await pool.step(one, "wait1")
            second = await pool.step(one, "wait1")
            assert first.observation == second.observation
            assert (first.replayed, second.replayed) == (0, 2)

    asyncio.run(body())
    assert all_end(folder)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["java", "engine"])
def test_kills_at_five_moments_change_nothing(folder: Path, victim: str) -> None:
    """Before the first step, in between, before the last one, and twice on the way."""

    async def body() -> None:
        task = make_world(SETTINGS).tasks("train")[9]
        async with EnginePool(SETTINGS) as pool:
            undisturbed = await played(pool, await pool.start(task), {})
            for moments in ((0,), (4,), (len(ACTIONS) - 1,), (2, 6)):
                kills = dict.fromkeys(moments, victim)
                before = pool.retries
                assert await played(pool, await pool.start(task), kills) == undisturbed
                assert pool.retries - before == len(kills)

    asyncio.run(body())
    assert all_end(folder)


@pytest.mark.slow
def test_a_rollout_killed_at_ten_moments_resumes_to_the_same_bytes(folder: Path) -> None:
    words = [
        "rollout",
        "--env",
        "scienceworld",
        "--policy",
        "search",
        "--set",
        "prompt.style=compact",
        "--where",
        "kind=find-animal",
    ]
    words += ["--tasks", "10", "--leaves", "1", "--max-steps", "8", "--set", "rollout.concurrency=1", "-q"]
    command = [sys.executable, "-m", "agentcli", *words]
    environment = as_here() | {"TMPDIR": str(folder)}
    subprocess.run([*command, "-o", "whole"], cwd=folder, env=environment, check=True)
    whole = (folder / "whole" / "trees.jsonl").read_bytes()
    resumed = [*command, "-o", "cut", "--resume"]
    trees = folder / "cut" / "trees.jsonl"
    # In one folder: what a kill spoils is still there at the end.
    for lines in range(10):
        program = subprocess.Popen(resumed, cwd=folder, env=environment)
        while not java_processes(folder) or (
            lines and (not trees.is_file() or trees.read_bytes().count(b"\n") < lines)
        ):
            assert program.poll() is None
            select.select([], [], [], 0.05)
        program.kill()
        program.wait()
        assert all_end(folder)
        # Whole lines, and perhaps a part of one.
        written = trees.read_bytes() if trees.is_file() else b""
        assert whole.startswith(written)
    subprocess.run(resumed, cwd=folder, env=environment, check=True)
    assert trees.read_bytes() == whole
    assert all_end(folder)
