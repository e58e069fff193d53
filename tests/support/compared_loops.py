"""Two loops of the toy world, made once: x (chain, grpo) and y (spark, carl, each row twice), from one tiny policy. Some of their
updates have nothing to learn from."""

import functools
from pathlib import Path

from command_line import chained

SETTINGS = """
environment: {name: "toy_world:ToyWorld", max_steps: 6, options: {tasks: 8, length: 3}}
prompt: {style: compact}
policy: {temperature: 1.0, max_tokens: 16}
demos: {count: 32, keep: all}
sft: {updates: 120, learning_rate: 1.0e-2, tiny: {hidden: 32, layers: 1, heads: 2, kv_heads: 1, intermediate: 32}}
rollout: {leaves: 3, tasks_per_step: 3, concurrency: 2}
train: {learning_rate: 1.0e-3, rows_per_update: 2, rows_per_microbatch: 2, beta: 0.0}
evaluation: {split: test}
"""
LOOP = ("run", "--preset", "./toy.yaml", "--model", "sft/checkpoint", "--iterations", "3")
SPARK = ("rollout.method=spark", "rollout.roots=2", "rollout.branch=fixed:.5", "credit.method=carl", "train.epochs=2")
CHAIN = [
    ("demos", "-c", "toy.yaml", "-o", "demos"),
    ("sft", "demos", "-c", "toy.yaml", "--model", "tiny", "-o", "sft"),
    (*LOOP, "--set=credit.invalid_penalty=0", "-o", "x"),
    (*LOOP, *(f"--set={change}" for change in SPARK), "-o", "y"),
    ("rollout", "-c", "toy.yaml", "--model", "sft/checkpoint", "-o", "plain"),
]


@functools.cache
def made(base: Path) -> Path:
    """The folder with demos, sft, x, y, and plain: one rollout."""
    return chained(base / "compared-loops", SETTINGS, ((*words, "-q") for words in CHAIN))
