"""env list | check | panel: the worlds there are, a trial of one, and its panels."""

import asyncio
import random
from collections.abc import Callable, Sequence

import msgspec

from agentcli.environments.engines.pool import EnginePool, State
from agentcli.environments.protocol import Card, Observation
from agentcli.environments.registry import make_world, tasks_of, world_names
from agentcli.errors import EngineError
from agentcli.records.files import derive_seed
from agentcli.records.settings import EnvironmentSettings, Settings
from agentcli.records.types import Panel, Task
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.panels import panel_for

FORKS = 3
"""Times that `check` goes back to one state."""
BRANCHES = 8
"""Most actions that `check` tries where it leaves the way."""


class ListedSplit(msgspec.Struct):
    """A split of a world."""

    world: str
    split: str
    tasks: int
    meaning: str
    """What its tasks test, in the world's words."""


class CheckedTask(msgspec.Struct):
    """One task as it was played."""

    task: str
    kind: str
    steps: int = 0
    reward: float = 0.0
    problem: str | None = None
    """None for a task that passed."""


def list_splits() -> list[ListedSplit]:
    """The splits of every world."""
    splits = []
    for name in world_names():
        world = make_world(EnvironmentSettings(name=name))
        for split in world.card.splits:
            meaning = world.card.meanings.get(split, "")
            tasks = len(tasks_of(world, name, split))
            splits.append(ListedSplit(name, split, tasks, meaning))
    return splits


def panel(settings: Settings) -> Panel:
    """The panel that the settings name."""
    return panel_for(make_world(settings.environment), settings.environment)


def check(
    settings: Settings,
    tasks: int,
    progress: Progress,
) -> list[CheckedTask]:
    """Plays tasks spread over the panel.

    Each must replay exactly and fork exactly, and where the world has an expert it must
    win. Without an expert the actions are drawn at random from those that the world
    shows.
    """
    return asyncio.run(_check(settings.environment, tasks, progress))


async def _check(
    environment: EnvironmentSettings,
    tasks: int,
    progress: Progress,
) -> list[CheckedTask]:
    world = make_world(environment)
    panel_tasks = panel_for(world, environment).tasks
    stride = max(1, len(panel_tasks) // tasks)
    checked = []
    async with EnginePool(environment) as pool:
        total = min(tasks, len(panel_tasks))
        progress.start(Standing(f"check {world.card.name}", total))
        for task in panel_tasks[::stride][:tasks]:
            row = CheckedTask(task.id, task.kind)
            try:
                await _check_task(row, pool, world.card, task, environment.max_steps)
            except EngineError as error:
                row.problem = str(error)
            checked.append(row)
            progress.advance(1, success=float(row.problem is None))
        progress.stop()
    return checked


async def _check_task(
    row: CheckedTask,
    pool: EnginePool,
    card: Card,
    task: Task,
    max_steps: int,
) -> None:
    """Plays a task twice, forks it, and enters in `row` what came of it."""
    state = await pool.start(task)
    choose = drawn(task, max_steps)
    if pool.solvable:
        choose = planned(await pool.plan(state))
    played, actions = await _play(pool, state, choose)
    row.steps = len(actions)
    row.reward = sum(state.observation.reward for state in played)
    shortfall = None
    if pool.solvable:
        shortfall = _shortfall(card, played[-1].observation, row.reward)
    await pool.release(task.id)
    state = await pool.start(task)
    replayed, _ = await _play(pool, state, planned(actions))
    row.problem = (
        _difference(played, replayed)
        or shortfall
        or ("" if actions else "nothing was played: the world shows no actions")
        or await _fork(pool, replayed, actions)
        or await _leave(pool, replayed, actions)
    )
    await pool.release(task.id)


async def _fork(
    pool: EnginePool, states: Sequence[State], actions: list[str]
) -> str | None:
    """Goes back to some states and on to the end, as methods with forks do.

    Gives the first step that came out otherwise.
    """
    for place in _places(actions):
        for _ in range(FORKS):
            state = states[place]
            for step in range(place, len(actions)):
                state = await pool.step(state, actions[step])
                change = _change(states[step + 1].observation, state.observation)
                if change is not None:
                    return (
                        f"after a fork at step {place}, step {step} differs: {change}"
                    )
    return None


async def _leave(
    pool: EnginePool, states: Sequence[State], actions: list[str]
) -> str | None:
    """Takes other actions after a fork, and takes them again without one.

    Gives the first that came out otherwise: the expert's own way may hide what a copy
    has forgotten.
    """
    task = states[0].task
    rng = random.Random(derive_seed("leave", task.id))
    for place in _places(actions):
        shown = states[place].observation.actions
        for action in rng.sample(shown, min(BRANCHES, len(shown))):
            forked = await pool.step(states[place], action)
            state = await pool.start(task)
            for before in [*actions[:place], action]:
                state = await pool.step(state, before)
            await pool.release(task.id)
            change = _change(state.observation, forked.observation)
            if change is not None:
                return f"after a fork at step {place}, {action!r} differs: {change}"
    return None


def _places(actions: list[str]) -> list[int]:
    """The steps at which a play is forked: the first, one in the middle, the last."""
    last = len(actions) - 1
    return sorted({0, last // 2, last})


def _shortfall(card: Card, last: Observation, reward: float) -> str | None:
    """The fault of the expert's episode; None when it is faultless."""
    if last.end == "success" and card.best_reward in (None, reward):
        return None
    return f"the expert ended with reward {reward}, end {last.end}"


def _difference(first: Sequence[State], second: Sequence[State]) -> str | None:
    """The first step at which two plays of the same actions differ."""
    for step, (one, two) in enumerate(zip(first, second, strict=True)):
        change = _change(one.observation, two.observation)
        if change is not None:
            return f"replay differs at step {step}: {change}"
    return None


def _change(before: Observation, after: Observation) -> str | None:
    """The first field in which two observations differ, and how."""
    for name in Observation.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            return f"{name} {old!r} became {new!r}"
    return None


Choice = Callable[[Observation, int], str | None]
"""The next action, by the last observation and the number of steps; None at the end."""


def planned(actions: list[str]) -> Choice:
    """These actions, in order."""

    def choose(observation: Observation, steps: int) -> str | None:
        return actions[steps] if steps < len(actions) else None

    return choose


def drawn(task: Task, max_steps: int) -> Choice:
    """Actions drawn from those that the world shows, until there are none."""
    rng = random.Random(derive_seed("check", task.id))

    def choose(observation: Observation, steps: int) -> str | None:
        over = observation.end is not None or steps >= max_steps
        if over or not observation.actions:
            return None
        return rng.choice(observation.actions)

    return choose


async def _play(
    pool: EnginePool,
    state: State,
    choose: Choice,
) -> tuple[list[State], list[str]]:
    """The states from `state` on, and the actions."""
    states = [state]
    actions: list[str] = []
    while (action := choose(state.observation, len(actions))) is not None:
        state = await pool.step(state, action)
        states.append(state)
        actions.append(action)
    return states, actions
