"""env list | check | panel: which worlds there are, whether one works here, and its
panels as files.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from agentcli.environments.engines.pool import EnginePool, State
from agentcli.environments.protocol import Card, Observation
from agentcli.environments.registry import make_world, world_names
from agentcli.errors import EngineError
from agentcli.records.files import derive_seed
from agentcli.records.settings import EnvironmentSettings, Settings
from agentcli.records.types import Panel, Task
from agentcli.stages.panels import panel_for
from agentcli.stages.progress import Progress


def list_worlds() -> list[dict[str, Any]]:
    """Name, splits with their number of tasks, or what is missing, for every world."""
    rows: list[dict[str, Any]] = []
    for name in world_names():
        world = make_world(EnvironmentSettings(name=name))
        rows.append(
            {
                "world": name,
                "splits": {
                    split: len(world.tasks(split)) for split in world.card.splits
                },
            }
        )
    return rows


def panel(settings: Settings) -> Panel:
    """The panel that the settings name."""
    return panel_for(make_world(settings.environment), settings.environment)


def check(settings: Settings, tasks: int, progress: Progress) -> list[dict[str, Any]]:
    """Play tasks spread over the panel: each must replay exactly, and where the world
    has an expert it must win.

    Without an expert the actions are drawn at random from those that the world shows.
    Returns one row per task: {"task", "kind", "steps", "reward", "problem"}; problem
    None means that it passed.
    """

    async def work() -> list[dict[str, Any]]:
        world = make_world(settings.environment)
        chosen = panel_for(world, settings.environment).tasks
        async with EnginePool(settings.environment) as pool:
            stride = max(1, len(chosen) // tasks)
            progress.start(f"check {world.card.name}", min(tasks, len(chosen)))
            rows = []
            for task in chosen[::stride][:tasks]:
                rows.append(
                    await _check_task(
                        pool, world.card, task, settings.environment.max_steps
                    )
                )
                progress.advance(1, success=float(rows[-1]["problem"] is None))
            progress.stop()
            return rows

    return asyncio.run(work())


async def _check_task(
    pool: EnginePool, card: Card, task: Task, max_steps: int
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "task": task.id,
        "kind": task.kind,
        "steps": 0,
        "reward": 0.0,
        "problem": None,
    }
    try:
        state = await pool.start(task)
        choose = (
            planned(await pool.plan(state)) if pool.solvable else drawn(task, max_steps)
        )
        first, actions = await _play(pool, state, choose)
        row["steps"] = len(actions)
        row["reward"] = sum(observation.reward for observation in first)
        if pool.solvable:
            row["problem"] = _shortfall(card, first[-1], row["reward"])
        await pool.release(task.id)
        second, _ = await _play(pool, await pool.start(task), planned(actions))
        await pool.release(task.id)
        for turn, (one, two) in enumerate(zip(first, second, strict=True)):
            if one != two:
                row["problem"] = (
                    f"replay differs at step {turn}: {one.text!r} became {two.text!r}"
                )
                break
    except EngineError as error:
        row["problem"] = str(error)
    return row


def _shortfall(card: Card, last: Observation, reward: float) -> str | None:
    """What the expert's episode lacks; None when it is faultless."""
    if last.end == "success" and card.best_reward in (None, reward):
        return None
    return f"the expert ended with reward {reward}, end {last.end}"


Choice = Callable[[Observation, int], str | None]
"""The next action after an observation and so many steps; None at the end."""


def planned(actions: list[str]) -> Choice:
    """These actions, in order."""

    def choose(observation: Observation, steps: int) -> str | None:
        return actions[steps] if steps < len(actions) else None

    return choose


def drawn(task: Task, max_steps: int) -> Choice:
    """Actions drawn from those that the world shows, until the episode ends or shows
    none.
    """
    rng = random.Random(derive_seed("check", task.id))

    def choose(observation: Observation, steps: int) -> str | None:
        goes_on = observation.end is None and observation.actions and steps < max_steps
        return rng.choice(observation.actions) if goes_on else None

    return choose


async def _play(
    pool: EnginePool, state: State, choose: Choice
) -> tuple[list[Observation], list[str]]:
    """Everything that was observed from `state` on, and the actions."""
    observations = [state.observation]
    actions: list[str] = []
    while (action := choose(state.observation, len(actions))) is not None:
        state = await pool.step(state, action)
        observations.append(state.observation)
        actions.append(action)
    return observations, actions
