"""examples/slurm.sh as SLURM runs it: one process for each task of an array, some of them again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import agentcli
from processes import as_here

SCRIPT = Path(__file__).parents[1] / "examples" / "slurm.sh"
WORDS = ("--env", "toy_world:ToyWorld", "--policy", "random", "--leaves", "2", "-q")


def job(folder: Path, index: int, count: int) -> None:
    """One task of an array."""
    program = folder / "bin" / "agentcli"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m agentcli "$@"\n', encoding="ascii")
    program.chmod(0o755)
    slurm = {"SLURM_ARRAY_TASK_ID": str(index), "SLURM_ARRAY_TASK_COUNT": str(count)}
    path = f"{program.parent}:{os.environ['PATH']}"
    subprocess.run([SCRIPT, "rollout", "parts", *WORDS], check=True, env={**as_here(), **slurm, "PATH": path})


@pytest.mark.slow
def test_the_shards_of_a_job_array_are_the_whole_rollout(empty_folder: Path) -> None:
    job(empty_folder, 1, 2)
    job(empty_folder, 2, 2)
    # It was killed in its second tree.
    trees = Path("parts/part-2/trees.jsonl")
    whole_part = trees.read_bytes()
    trees.write_bytes(whole_part[: len(whole_part) // 3])
    Path("parts/part-2/manifest.json").unlink()
    job(empty_folder, 2, 2)
    assert trees.read_bytes() == whole_part
    assert agentcli("merge", "parts/part-1", "parts/part-2", "-o", "whole", "-q").code == 0
    assert agentcli("rollout", *WORDS, "-o", "alone").code == 0
    assert Path("whole/trees.jsonl").read_bytes() == Path("alone/trees.jsonl").read_bytes()
