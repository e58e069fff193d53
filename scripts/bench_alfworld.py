"""Times the stock and the fast engine of ALFWorld on the same games.

    python scripts/bench_alfworld.py [GAMES=20] [--fast-only]

Every game is generated, loaded, and played four times: by the expert, at random, with
nonsense in between, and the random play once more ("again": its states are known). The
stock engine is TextWorld's environment as alfworld's AlfredTWEnv sets it up; it replays
the actions that were drawn on the fast one. Text, ordered commands, reward, done, won
and sorted facts of every moment go into one hash per engine; if the hashes differ, the
exit code is 1. "Seen" loads read the translation from disk; "live" ones find the game
in this process. Fast figures include the state key, which stock lacks.
"""

import gc
import hashlib
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from agentcli.environments.protocol import Observation
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.alfworld import generator
from agentcli.worlds.alfworld.engine import AlfworldEngine, FastEngine
from agentcli.worlds.alfworld.fast.game import close_idle
from agentcli.worlds.alfworld.options import AlfworldOptions
from agentcli.worlds.alfworld.world import AlfworldWorld

RANDOM_STEPS = 25
NONSENSE = (
    "",
    "help",
    " look ",
    "dance",
    "go to moon 1",
    "take everything",
    "open fridge 99",
)
T = TypeVar("T")


class Clock:
    """CPU milliseconds by what was done."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(list)

    def time(self, name: str, call: Callable[[], T]) -> T:
        start = time.process_time_ns()
        result = call()
        self.spent[name].append((time.process_time_ns() - start) / 1e6)
        return result


class Trace:
    """A running hash over everything an engine said."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.records = 0

    def add(self, *values: Any) -> None:
        self.hash.update(repr(values).encode())
        self.records += 1


def play(
    engine: AlfworldEngine,
    first: Observation,
    policy: str,
    name: str,
    clock: Clock,
    trace: Trace,
) -> list[str]:
    """One episode on the fast engine, timed under `name`; returns its actions."""
    rng = random.Random(f"{first.text} {policy}")
    observation, actions = (
        first,
        engine.plan() if policy == "expert" else [""] * RANDOM_STEPS,
    )
    note(trace, observation, engine)
    for position, action in enumerate(actions):
        if policy != "expert":
            nonsense = policy == "nonsense" and rng.random() < 0.4
            action = rng.choice(NONSENSE if nonsense else observation.actions)
        actions[position] = action
        observation = clock.time(name, lambda action=action: engine.step(action))  # type: ignore[misc]
        note(trace, observation, engine)
    return actions


def note(trace: Trace, observation: Observation, engine: AlfworldEngine) -> None:
    trace.add(
        observation.text,
        list(observation.actions),
        observation.reward,
        observation.end == "success",
        observation.end == "success",
        list(engine.facts()),
    )


def fast(
    path: Path, task: Task, cache: Path, clock: Clock, trace: Trace
) -> list[list[str]]:
    """Loads and plays one game; returns the actions of its episodes."""
    engine = FastEngine(lambda _: path, cache)
    for name in (
        "load (first)",
        "load (seen)",
        "load (live)",
        "load (seen)",
        "load (seen)",
    ):
        engine.close()
        if name != "load (live)":
            close_idle()
        clock.time(name, lambda: engine.load(task))
    episodes = []
    for policy, name in (
        ("expert", "step"),
        ("random", "step"),
        ("nonsense", "step"),
        ("random", "step (again)"),
    ):
        opened = clock.time("reset", lambda: engine.start(task))
        episodes.append(play(engine, opened.observation, policy, name, clock, trace))
    engine.close()
    return episodes


def stock(path: Path, episodes: list[list[str]], clock: Clock, trace: Trace) -> None:
    """The same episodes on the stock engine."""
    from agentcli.worlds.alfworld.engine import stock_environment
    from agentcli.worlds.alfworld.fast.translator import undisturbed

    def note_stock(state: Any, reward: float, done: bool) -> None:
        facts = sorted(
            (fact.name, *fact.names)
            for fact in map(environment._get_human_readable_fact, state["_facts"])
        )
        commands = [
            command for command in state.admissible_commands if command != "help"
        ]
        trace.add(
            state.feedback, commands, float(reward), bool(done), bool(state.won), facts
        )

    environment = clock.time("load", lambda: stock_environment(path))
    for actions in episodes:
        with undisturbed():
            state = clock.time("reset", environment.reset)
        note_stock(state, 0, False)
        for action in actions:
            state, reward, done = clock.time(
                "step", lambda action=action: environment.step(action)
            )  # type: ignore[misc]
            note_stock(state, reward, done)


def report(fast_clock: Clock, stock_clock: Clock) -> Table:
    """CPU milliseconds both ways and how many times less the fast engine needs."""
    table = Table(
        "",
        "calls",
        "fast mean",
        "median",
        "stock mean",
        "median",
        "ratio of means",
        "of medians",
        "required",
    )
    rows = (
        ("load (seen)", "load", "20"),
        ("load (live)", "load", ""),
        ("load (first)", "load", ""),
        ("reset", "reset", "300"),
        ("step", "step", "40"),
        ("step (again)", "step", ""),
    )
    for name, other, required in rows:
        mine, theirs = fast_clock.spent[name], stock_clock.spent.get(other, [])
        cells = [
            name,
            str(len(mine)),
            f"{statistics.mean(mine):.3f}",
            f"{statistics.median(mine):.3f}",
        ]
        if theirs:
            mean, median = statistics.mean(theirs), statistics.median(theirs)
            ratios = (mean / statistics.mean(mine), median / statistics.median(mine))
            cells += [
                f"{mean:.1f}",
                f"{median:.1f}",
                *(f"{ratio:,.0f}" for ratio in ratios),
                required,
            ]
        table.add_row(*cells)
    return table


def main(
    count: Annotated[int, typer.Argument(metavar="GAMES", min=1, max=200)] = 20,
    fast_only: Annotated[
        bool, typer.Option("--fast-only", help="Leave the stock engine out.")
    ] = False,
) -> None:
    """Compare the two ALFWorld engines over GAMES generated games."""
    console = Console(width=120)
    world = AlfworldWorld(EnvironmentSettings())
    warm_up, *first = world.tasks("L0")[: count - count // 2 + 1]
    tasks = [warm_up, *first, *world.tasks("L1")[: count // 2]]
    clocks, traces = (Clock(), Clock()), (Trace(), Trace())
    with tempfile.TemporaryDirectory(prefix="agentcli-bench-") as folder:
        for number, task in enumerate(tasks):
            path = generator.make(task.id, AlfworldOptions(), Path(folder) / "games")
            episodes = fast(
                path, task, Path(folder) / "translations", clocks[0], traces[0]
            )
            if not fast_only:
                stock(path, episodes, clocks[1], traces[1])
            if (
                number == 0
            ):  # what is imported and compiled once per process is in nobody's figures
                for clock in clocks:
                    clock.spent.clear()
                gc.collect()
                gc.freeze()
            console.print(
                f"game {number}/{count} {task.kind}", style="dim", highlight=False
            )
    console.print(
        report(*clocks),
        f"CPU ms; {count} games (and one before, not timed), {traces[0].records} "
        "moments compared",
        sep="\n",
    )
    if not fast_only:
        same = traces[0].hash.digest() == traces[1].hash.digest()
        console.print(
            f"traces {'identical' if same else 'DIFFER'}: "
            f"{traces[0].hash.hexdigest()[:16]} fast,",
            end=" ",
        )
        console.print(f"{traces[1].hash.hexdigest()[:16]} stock")
        raise typer.Exit(0 if same else 1)


if __name__ == "__main__":
    typer.run(main)
