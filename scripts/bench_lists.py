"""Times the credit of plain lists (agentcli/credit/lists.py), method by method, in this process.

The lists are those of a trainer's batch: groups of 8 rollouts of 10 steps, 20 states, a
response mask of 40 tokens a step.

usage: python scripts/bench_lists.py [--steps 10000] [--methods grpo rewardflow ...]
"""

import argparse
import random
import time
from typing import Any

from agentcli import step_advantages, token_advantages
from agentcli.credit.registry import METHODS

ROLLOUTS, LENGTH, SAMPLED, GIVEN = 8, 10, 30, 10


def batch(steps: int) -> dict[str, Any]:
    """Every list that some method reads."""
    draw = random.Random(1)
    rows = range(-(-steps // LENGTH))
    success = [draw.random() < 0.4 for _ in rows]

    def each(entry: Any) -> list[list[Any]]:
        return [[entry() for _ in range(LENGTH)] for _ in rows]

    return {
        "groups": [row // ROLLOUTS for row in rows],
        "rewards": [float(won) for won in success],
        "success": success,
        "states": each(lambda: f"state {draw.randrange(20)}"),
        "actions": each(lambda: draw.choice(["go", "take", "open"])),
        "valid": each(lambda: draw.random() < 0.95),
        "tags": each(lambda: draw.choice(["planning", "explore", "reflection"])),
        "values": each(draw.random),
        "scores": each(draw.random),
        "notes": each(lambda: {"best": 8.0, "chosen": 6.0, "process_ok": 1.0}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    given = parser.parse_args()
    lists = batch(given.steps)
    mask = [0] * GIVEN + [1] * SAMPLED
    masks = [mask * LENGTH for _ in lists["groups"]]
    step_advantages({"groups": [0], "rewards": [0]}, "grpo")
    print(f"{LENGTH * len(masks)} steps in {len(masks)} rollouts")
    for method in given.methods:
        begun = time.perf_counter()
        step_advantages(lists, method)
        by_step = time.perf_counter()
        token_advantages(masks, lists, method)
        by_token = time.perf_counter()
        print(
            f"  {method:<11} by step {by_step - begun:.3f} s, "
            f"by token {by_token - by_step:.3f} s"
        )


if __name__ == "__main__":
    main()
