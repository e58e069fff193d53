"""env list | check | panel: which worlds there are, whether one works here, and its panels as files."""

import asyncio
from typing import Any

from agentcli.environments.pool import EnginePool
from agentcli.environments.protocol import Observation
from agentcli.environments.registry import make_world, world_names
from agentcli.errors import EngineError
from agentcli.records.settings import EnvironmentSettings, Settings
from agentcli.records.types import Panel, Task
from agentcli.stages.panels import panel_for
from agentcli.stages.progress import Progress


def list_worlds() -> list[dict[str, Any]]:
    """Name, splits with their number of tasks, or what is missing, for every world."""
    rows: list[dict[str, Any]] = []
    for name in world_names():
        world = make_world(EnvironmentSettings(name=name))
        rows.append({"world": name, "splits": {split: len(world.tasks(split)) for split in world.splits()}})
    return rows


def panel(settings: Settings) -> Panel:
    """The panel that the settings name."""
    return panel_for(make_world(settings.environment), settings.environment)


def check(settings: Settings, tasks: int, progress: Progress) -> list[dict[str, Any]]:
    """Play the expert on tasks spread over the panel; each must end with success and replay exactly.

    Returns one row per task: {"task", "kind", "steps", "reward", "problem"}; problem None means that it passed.
    """

    async def work() -> list[dict[str, Any]]:
        world = make_world(settings.environment)
        chosen = panel_for(world, settings.environment).tasks
        async with EnginePool(settings.environment) as pool:
            stride = max(1, len(chosen) // tasks)
            progress.start(f"check {world.name}", min(tasks, len(chosen)))
            rows = []
            for task in chosen[::stride][:tasks]:
                rows.append(await _check_task(pool, task))
                progress.advance(1, success=float(rows[-1]["problem"] is None))
            progress.stop()
            return rows

    return asyncio.run(work())


async def _check_task(pool: EnginePool, task: Task) -> dict[str, Any]:
    row: dict[str, Any] = {"task": task.id, "kind": task.kind, "steps": 0, "reward": 0.0, "problem": None}
    try:
        first, actions = await _play(pool, task, None)
        row["steps"], row["reward"] = len(actions), sum(seen.reward for seen in first)
        if first[-1].end != "success" or row["reward"] != 1:
            row["problem"] = f"the expert ended with reward {row['reward']}, end {first[-1].end}"
        second, _ = await _play(pool, task, actions)
        for turn, (one, two) in enumerate(zip(first, second, strict=True)):
            if one != two:
                row["problem"] = f"replay differs at step {turn}: {one.text!r} became {two.text!r}"
                break
    except EngineError as error:
        row["problem"] = str(error)
    return row


async def _play(pool: EnginePool, task: Task, actions: list[str] | None) -> tuple[list[Observation], list[str]]:
    """Everything seen while playing these actions, or the expert's plan, from a fresh start."""
    state = await pool.start(task)
    seen = [state.observation]
    if actions is None:
        actions = await pool.plan(state)
    for action in actions:
        state = await pool.step(state, action)
        seen.append(state.observation)
    await pool.release(task.id)
    return seen, actions
