"""env list | check | panel | new: the worlds, a test of one, its panels, an example."""

import asyncio
import keyword
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib.resources import files
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from agentcli.environments.engines.pool import EnginePool, State
from agentcli.environments.protocol import Card, Observation
from agentcli.environments.registry import (
    check_split,
    make_world,
    tasks_of,
    world_names,
)
from agentcli.errors import EngineError, MissingError, UsageError, WriteError
from agentcli.records.files import derive_seed
from agentcli.records.regular import is_there
from agentcli.records.settings import EnvironmentSettings, Settings
from agentcli.records.types import Task
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.panels import panel_for

FORKS = 3
"""How often `check` returns to the same state."""
BRANCHES = 8
"""Most other actions that `check` tries at a state."""


class ListedSplit(msgspec.Struct):
    """One split of a world."""

    world: str
    split: str
    tasks: int | None
    """None if they cannot be counted, because something is not installed."""
    extra: str | None
    """The extra of this package that the world needs; None if it needs none."""
    meaning: str
    """What its tasks test, as described by the world."""


NONSENSE = "zqx vwk"
"""An action that no world knows."""

NOTHING_SHOWN = (
    "nothing was played: the world shows no actions; name some to try, in textarena with "
    "environment.options.actions"
)


class CheckedTask(msgspec.Struct):
    """The result of playing one task, with engine times in milliseconds."""

    task: str
    kind: str
    steps: int = 0
    reward: float = 0.0
    open_ms: float | None = None
    """Median time to open the task."""
    step_ms: float | None = None
    """Median time of a step."""
    fork_ms: float | None = None
    """Median time of a step from a state that the engine had left."""
    replayed_steps: int = 0
    """Number of steps replayed to return to such states."""
    memory_mb: float = 0.0
    """Memory of the engine processes at the end, in MiB."""
    forks_by: str | None = None
    """How states are restored: by snapshots, or by replaying the actions."""
    problem: str | None = None
    """What is wrong; None for a task that passed."""

    @property
    def result(self) -> str:
        """What is wrong, or that nothing is."""
        return self.problem or f"replay exact, forks exact (by {self.forks_by})"


def results(checked: Sequence[CheckedTask]) -> list[dict[str, Any]]:
    """The result of each task, without its costs."""
    names = ("task", "kind", "steps", "reward", "result")
    return [{name: getattr(row, name) for name in names} for row in checked]


def costs(checked: Sequence[CheckedTask]) -> dict[str, Any]:
    """Medians over the tasks, the total of replayed steps, and the largest memory."""
    shown: dict[str, Any] = {}
    for name in ("open_ms", "step_ms", "fork_ms"):
        times = [getattr(row, name) for row in checked]
        known = [time for time in times if time is not None]
        shown[name.replace("_", " ")] = _median(known)
    shown["steps replayed"] = sum(row.replayed_steps for row in checked)
    shown["memory MiB"] = max(row.memory_mb for row in checked)
    return shown


def list_splits(
    names: Iterable[str],
    note: Callable[[str], None],
) -> list[ListedSplit]:
    """The splits of these worlds. `note` gets what a count lacks, once for a world."""
    splits = []
    for name in names:
        world = make_world(EnvironmentSettings(name=name))
        lacking = dict[str, None]()
        for split in world.card.splits:
            tasks = None
            try:
                tasks = len(tasks_of(world, name, split))
            except MissingError as error:
                lacking[str(error)] = None
            meaning = world.card.meanings.get(split, "")
            splits.append(ListedSplit(name, split, tasks, world.card.extra, meaning))
        for problem in lacking:
            note(f"{name}: not counted: {problem}")
    return splits


def check(
    settings: Settings,
    tasks: int,
    progress: Progress,
) -> list[CheckedTask]:
    """Plays tasks spread over the panel.

    Each task must replay and fork exactly, also after actions that the world refuses;
    if the world has an expert, the expert must win. Without an expert, actions are
    drawn at random from those that the world shows. Raises UsageError for a card whose
    default splits are none of its splits.
    """
    return asyncio.run(_check(settings.environment, tasks, progress))


async def _check(
    environment: EnvironmentSettings,
    tasks: int,
    progress: Progress,
) -> list[CheckedTask]:
    world = make_world(environment)
    for field in ("split", "evaluation_split"):
        split = getattr(world.card, field)
        check_split(world, environment.name, split, f"card.{field}")
    panel_tasks = panel_for(world, environment).tasks
    stride = max(1, len(panel_tasks) // tasks)
    checked = []
    async with EnginePool(environment) as pool:
        total = min(tasks, len(panel_tasks))
        progress.start(Standing(f"check {world.card.name}", total))
        for task in panel_tasks[::stride][:tasks]:
            row = CheckedTask(task.id, task.kind)
            trial = Trial(pool, world.card, task, environment.max_steps)
            try:
                await trial.run(row)
            except EngineError as error:
                row.problem = str(error)
            trial.enter_costs(row)
            checked.append(row)
            progress.advance(1, success=float(row.problem is None))
        progress.stop()
    return checked


Choice = Callable[[Observation, int], str | None]
"""Chooses the next action from the latest observation and the number of steps; None
ends the episode.
"""


def planned(actions: list[str]) -> Choice:
    """Plays these actions in order."""

    def choose(observation: Observation, steps: int) -> str | None:
        return actions[steps] if steps < len(actions) else None

    return choose


def drawn(task: Task, max_steps: int) -> Choice:
    """Draws from the actions that the world shows, until it shows none."""
    rng = random.Random(derive_seed("check", task.id))

    def choose(observation: Observation, steps: int) -> str | None:
        if steps >= max_steps or not observation.actions:
            return None
        return rng.choice(observation.actions)

    return choose


class Trial:
    """One task that is played and forked while time is measured."""

    def __init__(
        self, pool: EnginePool, card: Card, task: Task, max_steps: int
    ) -> None:
        self._pool = pool
        self._card = card
        self._task = task
        self._max_steps = max_steps
        self._replayed_before = pool.replayed_steps
        self._opens: list[float] = []
        self._steps: list[float] = []
        self._forks: list[float] = []

    async def run(self, row: CheckedTask) -> None:
        """Plays the task twice, forks it, and records the result in `row`."""
        state = await self._start()
        choose = drawn(self._task, self._max_steps)
        if self._pool.solvable:
            choose = planned(await self._pool.plan(state))
        played, actions = await self._play(state, choose)
        row.steps = len(actions)
        row.reward = sum(state.observation.reward for state in played)
        shortfall = None
        if self._pool.solvable:
            shortfall = _shortfall(self._card, played[-1].observation, row.reward)
        await self._pool.release(self._task.id)
        replayed, _ = await self._play(await self._start(), planned(actions))
        row.forks_by = "snapshots" if replayed[-1].exact else "replaying"
        row.problem = (
            # In this order: a world that does not replay exactly cannot fork exactly
            # either.
            _difference(played, replayed)
            or shortfall
            or ("" if actions else NOTHING_SHOWN)
            or await self._fork(replayed, actions)
            or await self._leave(replayed, actions)
        )
        await self._pool.release(self._task.id)

    def enter_costs(self, row: CheckedTask) -> None:
        """Records the costs of opening, steps and forks."""
        row.open_ms = _median(self._opens)
        row.step_ms = _median(self._steps)
        row.fork_ms = _median(self._forks)
        row.replayed_steps = self._pool.replayed_steps - self._replayed_before
        row.memory_mb = self._pool.memory_mb

    async def _start(self) -> State:
        return await self._timed(self._pool.start(self._task), self._opens)

    async def _step(self, state: State, action: str) -> State:
        return await self._timed(self._pool.step(state, action), self._steps)

    async def _return(self, state: State, action: str) -> State:
        """Acts in a state that the engine has left."""
        return await self._timed(self._pool.step(state, action), self._forks)

    async def _timed(self, answer: Awaitable[State], times: list[float]) -> State:
        before = self._pool.seconds
        state = await answer
        times.append(1000 * (self._pool.seconds - before))
        return state

    async def _play(
        self, state: State, choose: Choice
    ) -> tuple[list[State], list[str]]:
        """Plays on from `state` to the end; returns the states and the actions."""
        states = [state]
        actions: list[str] = []
        while state.observation.end is None:
            action = choose(state.observation, len(actions))
            if action is None:
                break
            state = await self._step(state, action)
            states.append(state)
            actions.append(action)
        return states, actions

    async def _fork(self, states: Sequence[State], actions: list[str]) -> str | None:
        """Returns to some states and plays on to the end, as methods with forks do.

        Returns the first step with a different result.
        """
        for place in _places(actions):
            # A replay starts from the beginning, so another replay cannot have spoiled
            # it.
            for _ in range(FORKS if states[place].exact else 1):
                state = states[place]
                for step in range(place, len(actions)):
                    act = self._return if step == place else self._step
                    state = await act(state, actions[step])
                    change = _change(states[step + 1].observation, state.observation)
                    if change is not None:
                        return (
                            f"after a fork at step {place}, step {step} differs: "
                            f"{change}"
                        )
        return None

    async def _leave(self, states: Sequence[State], actions: list[str]) -> str | None:
        """Takes other actions after a fork, and again without a fork.

        Returns the first one with a different result: on the expert's own path, a bug
        in copying a state may not show. After actions that the world may refuse, it is
        forked once more.
        """
        rng = random.Random(derive_seed("leave", self._task.id))
        for place in _places(actions):
            shown = states[place].observation.actions
            # Without exact states, a fork is a replay, which is the same as playing
            # from the start.
            most = BRANCHES if states[place].exact else 1
            for action in rng.sample(shown, min(most, len(shown))):
                problem = await self._detour(states, actions[:place], [action])
                if problem is not None:
                    return problem
            for action in _strange(states, place)[:most]:
                detour = [action, actions[place]]
                problem = await self._detour(states, actions[:place], detour)
                if problem is not None:
                    return problem
        return None

    async def _detour(
        self, states: Sequence[State], before: list[str], detour: list[str]
    ) -> str | None:
        """Takes the actions of `detour` after `before`, with forks and without one.

        Returns the first one with a different result.
        """
        place = len(before)
        forked = [await self._return(states[place], detour[0])]
        for action in detour[1:]:
            if forked[-1].observation.end is None:
                forked.append(await self._twice(forked[-1], action))
        choose = planned([*before, *detour])
        unforked, _ = await self._play(await self._start(), choose)
        await self._pool.release(self._task.id)
        if len(unforked) < place + 2:
            # It ended before: the replay differs, not the fork.
            return _difference(states, unforked)
        for one, two in zip(unforked[place + 1 :], forked, strict=False):
            change = _change(one.observation, two.observation)
            if change is not None:
                *earlier, action = two.actions
                return (
                    f"after a fork at step {len(earlier)}, {action!r} differs: {change}"
                )
        return None

    async def _twice(self, state: State, action: str) -> State:
        """Acts twice in a state: before the second time, the engine has left it."""
        try:
            await self._step(state, action)
            return await self._return(state, action)
        except EngineError as error:
            raise EngineError(f"after {state.actions[-1]!r}: {error}") from error


def _strange(states: Sequence[State], place: int) -> list[str]:
    """Actions that a policy may try at a step, and the world may refuse.

    Nonsense; and where the world shows actions, one that it shows elsewhere alone.
    """
    shown = states[place].observation.actions
    if not shown:
        return [NONSENSE]
    elsewhere = chain.from_iterable(state.observation.actions for state in states)
    half_known = f"{shown[0].partition(' ')[0]} {NONSENSE}"
    other = next((action for action in elsewhere if action not in shown), half_known)
    return [NONSENSE, other]


def _median(times: Sequence[float]) -> float | None:
    return median(times) if times else None


def _places(actions: list[str]) -> list[int]:
    """The steps at which an episode is forked: the first, a middle one, the last."""
    last = len(actions) - 1
    return sorted({0, last // 2, last})


def _shortfall(card: Card, last: Observation, reward: float) -> str | None:
    """What is wrong with the expert's episode; None if nothing is."""
    if last.end == "success" and card.best_reward in (None, reward):
        return None
    return f"the expert ended with reward {reward}, end {last.end}"


def _difference(first: Sequence[State], second: Sequence[State]) -> str | None:
    """The first step at which two runs of the same actions differ.

    Where one ended early, that step differs in its end.
    """
    for step, (one, two) in enumerate(zip(first, second, strict=False)):
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


TEMPLATE = "agentcli.worlds.template"
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def new_world(name: str, folder: Path) -> dict[Path, str]:
    """The files of a new world and their contents; nothing is written.

    Raises UsageError for a name that is not a Python module name, that another module
    or world has, or that the files use otherwise, and for a file that exists.
    """
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(
            f"NAME {name!r}: write a Python module's name, for instance my_world"
        )
    if name in world_names() or _is_importable(name):
        raise UsageError(f"NAME {name}: there is another module or world of this name")
    sources = {"world.py": f"{name}.py", "test_world.py": f"test_{name}.py"}
    title = "".join(word.capitalize() for word in name.split("_"))
    texts = {}
    for source, target in sources.items():
        path = folder / target
        if is_there(path):
            raise UsageError(f"{path} exists; choose another NAME")
        text = files(TEMPLATE).joinpath(source).read_text(encoding="utf-8")
        if re.search(rf"\b{title}\b", text.replace("NewWorld", "")):
            raise UsageError(f"NAME {name}: its files import a {title}; choose another")
        text = text.replace("NewWorld", title)
        texts[path] = re.sub(r"\bnew_world\b", name, text)
    return texts


def write_world(texts: dict[Path, str]) -> None:
    """Writes the files. Raises WriteError if one cannot be written."""
    for path, text in texts.items():
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise WriteError(f"{path}: {error.strerror}") from error


def _is_importable(name: str) -> bool:
    """Whether `import NAME` finds a module outside this folder."""
    import sys
    from importlib.machinery import PathFinder

    elsewhere = [path for path in sys.path if Path(path or ".").resolve() != Path.cwd()]
    is_built_in = name in sys.builtin_module_names
    return is_built_in or PathFinder.find_spec(name, elsewhere) is not None
