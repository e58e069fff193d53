"""What ScienceWorld costs: opening, steps, memory, the adapter's share, and several Java processes.

usage: python scripts/bench_scienceworld.py [TASKS [ROUNDS]]
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.registry import make_world, tasks_of
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.scienceworld.simulator import ScienceGame, Simulator
from agentcli.worlds.scienceworld.world import ScienceWorldWorld

LONGEST = 40
"""Steps that are played of each task's own solution."""
PROCESSES = (2, 4)
LAPS = 2
"""Times that a process plays as many tasks as there are before it is timed."""
TIMED_LAPS = 6
"""Times that the tasks are played while it is timed. At the end some processes wait for the last one: a short end of a long play."""
OPEN = 2
"""Tasks that a process has open at once. A task stays in its process, so all at once would share them out by number, not by length."""
LOOPS = 40_000_000
"""Turns of a plain Python loop, about a second."""


Function = Callable[..., Any]


class Clock:
    """The seconds that calls of functions take."""

    def __init__(self) -> None:
        self.times: list[float] = []

    @property
    def total(self) -> float:
        """Their sum."""
        return sum(self.times)

    def around(self, function: Function) -> Function:
        """The function, timed."""

        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            result = function(*arguments)
            self.times.append(time.perf_counter() - began)
            return result

        return timed


def resident_mb(pid: int) -> float:
    """Memory of a process that is in use."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def solutions(world: ScienceWorldWorld, tasks: list[Task]) -> dict[str, list[str]]:
    """The first steps of each task's own solution, by its id."""
    engine = world.engine()
    paths = {}
    for task in tasks:
        engine.start(task)
        paths[task.id] = engine.plan()[:LONGEST]
    return paths


def steps(
    world: ScienceWorldWorld, paths: dict[str, list[str]], tasks: list[Task]
) -> None:
    """Opens and steps of one engine, and what of them is the simulator's."""
    inside, opening, stepping = Clock(), Clock(), Clock()
    for name in ("open", "step", "look", "inventory", "things", "task"):
        setattr(ScienceGame, name, inside.around(getattr(ScienceGame, name)))
    engine = world.engine()
    start, step = opening.around(engine.start), stepping.around(engine.step)
    for task in tasks:
        start(task)
        for action in paths[task.id]:
            step(action)
    whole = opening.total + stepping.total
    print(
        f"open {1000 * median(opening.times):.0f} ms, step {1000 * median(stepping.times):.1f} ms (medians of "
        f"{len(opening.times)} and {len(stepping.times)}); the adapter adds {100 * (whole / inside.total - 1):.1f} %"
    )


def used_mb(simulator: Simulator) -> float:
    """Heap in use after a collection of garbage."""
    runtime = simulator._gateway.jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    used: int = runtime.totalMemory() - runtime.freeMemory()
    return used / 2**20


def memory(heap_mb: int = 512, games: int = 100) -> None:
    """The Java process with many games."""
    began = time.perf_counter()
    simulator = Simulator(heap_mb)
    seconds = time.perf_counter() - began
    live = []
    empty = used_mb(simulator)
    for number in range(games):
        game = simulator.game()
        game.open("find-plant", number, "easy")
        game.step("look around")
        live.append(game)
    used = used_mb(simulator)
    print(
        f"start {seconds:.1f} s; {games} games: {resident_mb(simulator.pid):.0f} MB resident, heap {used:.0f} MB, "
        f"{(used - empty) / games:.2f} MB a game"
    )
    simulator.close()


class Pace(NamedTuple):
    """Steps of some processes."""

    per_second: float
    cpu_ms: float
    """Processor time of a step, Java's and its engine process's."""


def processor_seconds() -> float:
    """Processor time of the engine processes of this one, and of their Java processes."""
    me = os.getpid()
    workers = Path(f"/proc/self/task/{me}/children").read_text().split()
    ticks = 0
    for worker in workers:
        children = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
        for pid in (worker, *children):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def speed(processes: int, paths: dict[str, list[str]], tasks: list[Task]) -> Pace:
    """The pace of so many engine processes, one Java process each."""
    settings = EnvironmentSettings(
        name="scienceworld", processes=processes, deadline_seconds=600
    )

    gate = asyncio.Semaphore(OPEN * processes)

    async def play(pool: EnginePool, task: Task) -> int:
        async with gate:
            state = await pool.start(task)
            for action in paths[task.id]:
                state = await pool.step(state, action)
            await pool.release(task.id)
        return len(paths[task.id])

    async with EnginePool(settings) as pool:
        # Java compiles for its first thousand steps: each process has to get there.
        for _ in range(LAPS * processes):
            await asyncio.gather(*(play(pool, task) for task in tasks))
        began, spent = time.perf_counter(), processor_seconds()
        counts = await asyncio.gather(
            *(play(pool, task) for task in tasks * TIMED_LAPS)
        )
        seconds = time.perf_counter() - began
        spent = processor_seconds() - spent
        return Pace(sum(counts) / seconds, 1000 * spent / sum(counts))


def plain_speed(processes: int) -> float:
    """Loops a second of so many plain Python processes: what the machine has to give."""
    command = [sys.executable, "-c", f"for _ in range({LOOPS}): pass"]
    began = time.perf_counter()
    running = [subprocess.Popen(command) for _ in range(processes)]
    for process in running:
        process.wait()
    return processes * LOOPS / (time.perf_counter() - began)


def show_speeds(paths: dict[str, list[str]], tasks: list[Task], rounds: int) -> None:
    """Several processes against one, round by round: other work slows all alike."""
    gains: dict[int, list[float]] = {count: [] for count in PROCESSES}
    ceilings: dict[int, list[float]] = {count: [] for count in PROCESSES}
    costs: dict[int, list[float]] = {count: [] for count in PROCESSES}
    for _ in range(rounds):
        one = asyncio.run(speed(1, paths, tasks))
        plain_one = plain_speed(1)
        for count in PROCESSES:
            several = asyncio.run(speed(count, paths, tasks))
            gains[count].append(several.per_second / one.per_second)
            costs[count].append(several.cpu_ms / one.cpu_ms)
            ceilings[count].append(plain_speed(count) / plain_one)
    for count in PROCESSES:
        print(
            f"{count} processes: {median(gains[count]):.2f} times the steps of one "
            f"({listed(gains[count])}); as many plain Python processes "
            f"{median(ceilings[count]):.2f} times ({listed(ceilings[count])}); a step takes "
            f"{median(costs[count]):.2f} times the processor time ({listed(costs[count])})"
        )


def listed(values: list[float]) -> str:
    """Every value, in its order."""
    return ", ".join(f"{value:.2f}" for value in values)


def main(words: list[str]) -> None:
    """Prints one line for each measurement."""
    world = make_world(EnvironmentSettings(name="scienceworld"))
    assert isinstance(world, ScienceWorldWorld)
    count = int(words[0]) if words else 29
    rounds = int(words[1]) if len(words) > 1 else 3
    tasks = tasks_of(world, "scienceworld", "train")[:count]
    paths = solutions(world, tasks)
    memory()
    steps(world, paths, tasks)
    show_speeds(paths, tasks, rounds)
    world.close()


if __name__ == "__main__":
    main(sys.argv[1:])
