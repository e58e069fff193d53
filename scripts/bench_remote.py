"""Times a world that a server plays against the same world here, step by step.

    python scripts/bench_remote.py [--env ezpoints] [--seconds 5] [--rounds 5]

The server runs beside this process, on loopback. One client plays random episodes, one
step at a time, in turns: with the engine in this process, and in a session of the
server. The ratio is the median over rounds, so that whatever else the machine does slows
both. `wait` is the longest of the shortest 99 of 100 steps.
"""

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from agentcli.environments.protocol import Engine
from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task

SERVE = [sys.executable, "-m", "agentcli", "env", "serve", "--port", "0"]


@contextmanager
def served(name: str) -> Iterator[str]:
    """The address of a server of the world."""
    with subprocess.Popen([*SERVE, name], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        yield url
        server.terminate()


class Player:
    """An engine and what its steps took."""

    def __init__(self, engine: Engine, tasks: list[Task]) -> None:
        self.engine = engine
        self.tasks = tasks
        self.rates: list[float] = []
        """Steps per second of each round."""
        self.waits: list[float] = []
        """Milliseconds of each step."""

    def play(self, seconds: float, seed: int) -> None:
        """Random episodes for a while; openings are not counted."""
        rng = random.Random(seed)
        spent, steps = 0.0, 0
        while spent < seconds:
            observation = self.engine.start(rng.choice(self.tasks)).observation
            while observation.end is None and spent < seconds:
                action = rng.choice(observation.actions)
                before = time.perf_counter()
                observation = self.engine.step(action)
                took = time.perf_counter() - before
                spent += took
                steps += 1
                self.waits.append(1000 * took)
        self.rates.append(steps / spent)

    def report(self, name: str) -> str:
        """A line of the table."""
        wait = statistics.quantiles(self.waits, n=100)[-1]
        return f"{name:8} {statistics.median(self.rates):10.0f} {wait:9.3f}"


def main(
    env: Annotated[str, typer.Option(help="World to play.")] = "ezpoints",
    seconds: Annotated[float, typer.Option(help="Length of a round.")] = 2.0,
    rounds: Annotated[int, typer.Option(help="Rounds of each.")] = 5,
) -> None:
    """Prints steps per second here and at the server, and their ratio."""
    world = make_world(EnvironmentSettings(name=env))
    tasks = world.tasks(world.card.split)
    with served(env) as url:
        remote = make_world(EnvironmentSettings(name=url))
        here = Player(world.engine(), tasks)
        there = Player(remote.engine(), tasks)
        for seed in range(rounds):
            here.play(seconds, seed)
            there.play(seconds, seed)
    print("engine      steps/s   wait ms")
    print(here.report("here"))
    print(there.report("served"))
    ratios = [far / near for far, near in zip(there.rates, here.rates, strict=True)]
    print(f"ratio {statistics.median(ratios):.4f}")


if __name__ == "__main__":
    typer.run(main)
