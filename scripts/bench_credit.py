"""Times `agentcli assign-credit` against decoding the same file, method by method.

Every figure is a whole process, start-up included, one after the other on one generated
file: trees of 16 leaves and up to 20 steps, half of them forked midway, with prompts of
1-2 KB, 20 admissible actions, 30 tokens with log-probabilities, critic values. Printed:
seconds, ratio to decoding (the limit is 3), peak memory (the limit is 400 MB); the same
for other sizes (--sizes), which shows whether time is linear; and RewardFlow's search
against the propagation in 1,000 sweeps that it replaces.

usage: python scripts/bench_credit.py [--steps 20000] [--methods grpo carl ...] [--sizes
20000 200000 2000000] [--no-graphs]
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from agentcli.credit.graph import hops_to
from agentcli.credit.registry import METHODS
from agentcli.records.types import (
    Ledger,
    Outcome,
    Step,
    StopReason,
    Task,
    Tree,
    Validity,
)

ROOT = Path(__file__).resolve().parents[1]
DECODE = """
import sys
import msgspec
from agentcli.records.types import Tree
decoder = msgspec.json.Decoder(Tree)
with open(sys.argv[1], "rb") as file:
    for line in file:
        decoder.decode(line)
"""
LEAVES, LENGTH, ADMISSIBLE, TOKENS = 16, 20, 20, 30
DISTINCT_TREES = 48
GAMMA, SWEEPS = 0.9, 1000
TEXT = (
    "go to take move open close clean heat cool use examine cabinet drawer shelf "
    "fridge microwave apple mug desk lamp 1 2 3"
)
WORDS = TEXT.split(" ")


def words(draw: random.Random, count: int) -> str:
    return " ".join(draw.choices(WORDS, k=count))


def a_step(
    draw: random.Random, number: int, parent: Step | None, states: list[str]
) -> Step:
    state = states[0] if parent is None else parent.next_state
    canonical = words(draw, 40) if parent is None else parent.next_canonical
    validity = draw.choices(list(Validity), weights=(94, 3, 3))[0]
    action = words(draw, 4)
    return Step(
        id=number,
        parent=None if parent is None else parent.id,
        prompt=words(draw, draw.randint(180, 360)),
        response=f"<think>{words(draw, 15)}</think><action>{action}</action>",
        token_ids=[draw.randrange(150_000) for _ in range(TOKENS)],
        logprobs=[-draw.expovariate(2.0) for _ in range(TOKENS)],
        stop=StopReason.STOP,
        observation=words(draw, 40),
        admissible=[words(draw, 4) for _ in range(ADMISSIBLE)],
        tag=draw.choice(["think", "explore", "planning", "reflection"]),
        action=None if validity is Validity.MALFORMED else action,
        validity=validity,
        state=state,
        next_state=state if validity is not Validity.VALID else draw.choice(states),
        canonical=canonical,
        next_canonical=canonical
        if validity is not Validity.VALID
        else draw.choice(states),
        next_observation=words(draw, 40),
        value=draw.random(),
        score=draw.random(),
        notes={"best": 8.0, "chosen": draw.uniform(6, 8), "process_ok": 1.0},
    )


def a_tree(draw: random.Random) -> Tree:
    """Half of the leaves from the root, half forked from a step midway."""
    states = [words(draw, 45) for _ in range(60)]
    steps: list[Step] = []
    for leaf in range(LEAVES):
        above, length = None, LENGTH
        if leaf >= LEAVES // 2:
            above = draw.choice([step for step in steps if step.outcome is None])
            length = LENGTH // 2
        for _ in range(length):
            steps.append(a_step(draw, len(steps), above, states))
            above = steps[-1]
        steps[-1].outcome = draw.choice(
            [Outcome.SUCCESS, Outcome.FAILURE, Outcome.TRUNCATED]
        )
    task = Task(
        id="task-000000", world="alfworld", split="train", kind="pick_and_place"
    )
    return Tree(
        task=task,
        instruction=words(draw, 8),
        method="spark",
        seed=0,
        steps=steps,
        ledger=Ledger(),
    )


def write_trees(folder: Path, steps: int) -> Path:
    """A run directory whose trees hold at least `steps` steps."""
    draw = random.Random(1)
    lines = []
    for _ in range(DISTINCT_TREES):
        tree = a_tree(draw)
        lines.append((msgspec.json.encode(tree) + b"\n", len(tree.steps)))
    folder.mkdir(parents=True)
    written = number = 0
    with open(folder / "trees.jsonl", "wb") as file:
        while written < steps:
            line, size = lines[number % DISTINCT_TREES]
            file.write(line.replace(b"task-000000", b"task-%06d" % number, 1))
            written, number = written + size, number + 1
    return folder / "trees.jsonl"


def measured(*command: str) -> tuple[float, float, float]:
    """Seconds, processor seconds and peak memory in MB of one process."""
    begun = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"failed: {' '.join(command)}")
    return (
        time.perf_counter() - begun,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1024,
    )


def compare(folder: Path, steps: int, methods: Iterable[str]) -> None:
    """One line per method: `assign-credit` against decoding alone, the better of two
    times.
    """
    trees = write_trees(folder, steps)
    decode, decode_cpu, _ = min(measured("-c", DECODE, str(trees)) for _ in range(2))
    size = trees.stat().st_size / 1e6
    print(
        f"{steps} steps, {size:.0f} MB: decoding alone {decode:.2f} s "
        f"({decode_cpu:.2f} s of processor time)"
    )
    for method in methods:
        arguments = (
            "assign-credit",
            str(folder),
            "--method",
            method,
            "--overwrite",
            "--quiet",
        )
        seconds, cpu, memory = measured("-m", "agentcli", *arguments)
        ratios = f"ratio {seconds / decode:.2f} (processor {cpu / decode_cpu:.2f})"
        print(
            f"  {method:<11}{seconds:7.2f} s  {ratios}  peak {memory:.0f} MB",
            flush=True,
        )
    trees.unlink()


def sweeps(
    rewards: list[float], edges: list[tuple[int, int]], limit: int, stop: bool
) -> list[float]:
    """Values by sweeping all transitions, V(s) = max(V(s), gamma V(s')), `limit` times
    or (`stop`) until nothing changes.
    """
    values = list(rewards)
    for _ in range(limit):
        changed = False
        for source, target in edges:
            better = GAMMA * values[target]
            if better > values[source]:
                values[source] = better
                changed = True
        if stop and not changed:
            break
    return values


def graphs() -> Iterator[str]:
    """Search against sweeps on chains with shortcuts backwards, as walks through rooms
    have them.
    """
    for nodes in (30, 300, 3000):
        draw = random.Random(nodes)
        edges = [(n, n + 1) for n in range(nodes - 1)]
        edges += [
            (n, draw.randrange(max(0, n - 30), n + 1))
            for n in range(nodes)
            for _ in range(2)
        ]
        draw.shuffle(edges)
        rewards = [0.0] * (nodes - 1) + [1.0]
        begun = time.perf_counter()
        for _ in range(20):
            hops = hops_to([nodes - 1], edges, nodes)
        searched = (time.perf_counter() - begun) / 20
        begun = time.perf_counter()
        values = sweeps(rewards, edges, SWEEPS, stop=False)
        swept = time.perf_counter() - begun
        begun = time.perf_counter()
        sweeps(rewards, edges, SWEEPS, stop=True)
        stopped = time.perf_counter() - begun
        same = all(
            abs((GAMMA**far if far is not None else 0.0) - v) < 1e-9
            for far, v in zip(hops, values, strict=True)
        )
        yield (
            f"{nodes} nodes, {len(edges)} transitions: search {1000 * searched:.2f} "
            f"ms, {SWEEPS} sweeps {1000 * swept:.0f} ms (ratio "
            f"{swept / searched:.0f}), sweeps until still {1000 * stopped:.1f} ms "
            f"(ratio {stopped / searched:.1f}); "
            f"{'equal values' if same else 'VALUES DIFFER'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--steps",
        type=int,
        default=20_000,
        help="steps of the file all methods are measured on",
    )
    parser.add_argument(
        "--methods", nargs="+", default=list(METHODS), choices=list(METHODS)
    )
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="*",
        default=[],
        help="further sizes, for the first method only",
    )
    parser.add_argument("--no-graphs", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder) / "run", given.steps, given.methods)
        for size in given.sizes:
            compare(Path(folder) / str(size), size, given.methods[:1])
    if not given.no_graphs:
        for line in graphs():
            print(line)


if __name__ == "__main__":
    main()
