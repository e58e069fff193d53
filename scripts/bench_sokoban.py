"""Steps of Sokoban in a second and a process: in signs, and with pictures that are drawn anew or known.

usage: python scripts/bench_sokoban.py [--steps N] [--levels N]
"""

import argparse
import random
import time

from agentcli.records.settings import EnvironmentSettings
from agentcli.worlds.sokoban.rules import MOVES, SokobanOptions, draw_level
from agentcli.worlds.sokoban.world import SokobanWorld, draw_room


def rate(steps: int, levels: int, *, pictures: bool) -> float:
    """Steps a second of random moves, the levels drawn before."""
    world = SokobanWorld(
        EnvironmentSettings(name="sokoban", options={"pictures": pictures})
    )
    tasks = world.tasks("train")[:levels]
    for index in range(levels):
        draw_level(world.options, "train", index)
    engine = world.engine()
    moves = random.Random(0).choices(list(MOVES), k=steps)
    begun = time.process_time()
    for number, move in enumerate(moves):
        if number % 15 == 0:
            engine.start(tasks[number // 15 % levels])
        engine.step(move)
    return steps / (time.process_time() - begun)


def main() -> None:
    """Prints the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--levels", type=int, default=100)
    chosen = parser.parse_args()
    size = SokobanOptions().size
    print(
        f"in signs: {rate(chosen.steps, chosen.levels, pictures=False):,.0f} steps a second of one processor, {size} x {size}"
    )
    draw_room.cache_clear()
    print(
        f"with pictures: {rate(chosen.steps, chosen.levels, pictures=True):,.0f}, each state drawn when it is first met"
    )
    print(
        f"with pictures: {rate(chosen.steps, chosen.levels, pictures=True):,.0f}, all of them known"
    )


if __name__ == "__main__":
    main()
