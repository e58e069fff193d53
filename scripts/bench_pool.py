"""Times the engine pool: many tasks played at random at once, by worker processes.

Pools of all sizes are open together and take turns, so that whatever else the machine
does slows all of them: the ratios (the median over rounds of the steps per second
against the first pool's in the same round) can be trusted where the rates cannot. Then,
per step, the CPU time of this process and of the workers (microseconds); and memory
that no other process shares (MB): of a process before its first task, and of each live
engine when its task is open and when it has been played. Needs Linux (/proc).

    python scripts/bench_pool.py --env alfworld --tasks 64 --steps 30 --rounds 5
    --processes 1 2 3 4
"""

import argparse
import asyncio
import os
import random
import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task


def children() -> set[Path]:
    """/proc folders of this process's children."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {Path("/proc") / pid for pid in pids}


class Bench:
    """A pool and what was measured of it."""

    def __init__(self, pool: EnginePool, tasks: list[Task], workers: set[Path]) -> None:
        self.pool, self.tasks, self.workers = pool, tasks, workers
        self.steps = 0
        self.rates: list[float] = []
        """Steps per second of each round."""
        self.cpu_seconds = 0.0
        """CPU seconds of this process while the pool played."""
        self.idle = self.memory()

    async def open(self) -> None:
        """Open all tasks and keep them open."""
        await asyncio.gather(*(self.pool.start(task) for task in self.tasks))
        self.opened, self.started = self.memory(), self.cpu()

    async def round(self, number: int, longest: int) -> None:
        """One random episode of every task, all at once."""
        wall, cpu_seconds = time.perf_counter(), time.process_time()
        steps = sum(
            await asyncio.gather(
                *(self.episode(task, number, longest) for task in self.tasks)
            )
        )
        self.rates.append(steps / (time.perf_counter() - wall))
        self.cpu_seconds += time.process_time() - cpu_seconds
        self.steps += steps

    async def episode(self, task: Task, number: int, longest: int) -> int:
        rng = random.Random(f"{task.id} {number}")
        state = await self.pool.start(task)
        while len(state.actions) < longest and state.observation.end is None:
            state = await self.pool.step(state, rng.choice(state.observation.actions))
        await self.pool.release(task.id)
        return len(state.actions)

    def memory(self) -> float:
        """MB that the workers share with no other process."""
        lines = [
            line.split()
            for worker in self.workers
            for line in (worker / "smaps_rollup").open()
        ]
        return (
            sum(int(line[1]) for line in lines if line[0].startswith("Private_"))
            * 1024
            / 1e6
        )

    def cpu(self) -> float:
        """CPU seconds of the workers so far."""
        stats = [
            (worker / "stat").read_text().rpartition(")")[2].split()
            for worker in self.workers
        ]
        return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf(
            "SC_CLK_TCK"
        )

    def report(self, first: "Bench") -> str:
        """A line of the table."""
        cpu_seconds, theirs = (
            seconds / self.steps * 1e6
            for seconds in (self.cpu_seconds, self.cpu() - self.started)
        )
        ratio = statistics.median(
            mine / its for mine, its in zip(self.rates, first.rates, strict=True)
        )
        opened, played = (
            (full - self.idle) / len(self.tasks)
            for full in (self.opened, self.memory())
        )
        return (
            f"{len(self.workers):9} {statistics.median(self.rates):8.0f} {ratio:6.2f} "
            f"{cpu_seconds:13.0f} {theirs:8.0f} {self.idle / len(self.workers):8.1f} "
            f"{opened:12.2f} {played:7.2f}"
        )


async def measure(arguments: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        benches: list[Bench] = []
        for processes in arguments.processes:
            settings = EnvironmentSettings(
                name=arguments.env, split=arguments.split, processes=processes
            )
            tasks, before = (
                make_world(settings).tasks(settings.split)[: arguments.tasks],
                children(),
            )
            pool = await stack.enter_async_context(EnginePool(settings))
            benches.append(Bench(pool, tasks, children() - before))
            await benches[-1].open()
        for number in range(arguments.rounds):
            for bench in benches:
                await bench.round(number, arguments.steps)
        print(
            "processes  steps/s  ratio  this process  workers  MB idle  MB an "
            "engine  played"
        )
        for bench in benches:
            print(bench.report(benches[0]))
    print(f"processes left: {len(children())}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="alfworld")
    parser.add_argument("--split", default="train")
    parser.add_argument("--tasks", type=int, default=64, help="in flight at once")
    parser.add_argument(
        "--steps", type=int, default=30, help="most steps of an episode"
    )
    parser.add_argument("--rounds", type=int, default=5, help="episodes of each task")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 3, 4])
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
