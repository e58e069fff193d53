"""A tiny policy of the toy world, made once: demonstrations, the policy that imitates them, and one rollout of it."""

import functools
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from command_line import chained

SETTINGS = """
environment: {name: "toy_world:ToyWorld", max_steps: 6, options: {tasks: 8, length: 3}}
prompt: {style: compact}
policy: {temperature: 1.0, max_tokens: 16}
demos: {count: 32, keep: all}
sft: {updates: 60, learning_rate: 1.0e-2, tiny: {hidden: 32, layers: 1, heads: 2, kv_heads: 1, intermediate: 32}}
rollout: {leaves: 3, tasks_per_step: 3, concurrency: 2}
evaluation: {split: test}
"""
POLICY = ("-c", "toy.yaml", "--model", "sft/checkpoint")
ROLLOUT = ("rollout", *POLICY, "-q")
CHAIN = [
    ("demos", "-c", "toy.yaml", "-o", "demos", "-q"),
    ("sft", "demos", "-c", "toy.yaml", "--model", "tiny", "-o", "sft", "-q"),
    (*ROLLOUT, "-o", "plain"),
]


@functools.cache
def made(base: Path) -> Path:
    """The folder with demos, sft and plain, the rollout."""
    return chained(base / "toy-policy", SETTINGS, CHAIN)


def chained_on(base: Path, folder: Path, train: str, commands: Iterable[Sequence[str]]) -> Path:
    """`folder`, a copy of what was made, with the settings of `train` besides, and what `commands` leave there."""
    shutil.copytree(made(base), folder, symlinks=True)
    return chained(folder, f"{SETTINGS}train: {train}\n", commands)
