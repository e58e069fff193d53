"""Two processes that are stopped go on with the bits of two that were not, each with its own random state."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from agentcli.training.loop.snapshots import FILE
from bad_input_runs import built
from processes import as_here
from stopping import left


@pytest.mark.slow
def test_two_processes_go_on(rollout, tmp_path):
    for name in ("trees.jsonl", "credit.jsonl", "model"):
        (tmp_path / name).symlink_to(rollout.folder / name)
    worker = Path(__file__).parents[2] / "support" / "resume_worker.py"
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launch, worker, tmp_path],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:6000]
    for name in ("train", "sft"):
        assert left(tmp_path / f"{name}-parts") == left(tmp_path / f"{name}-whole")
        assert (tmp_path / f"{name}-parts" / "snapshot" / FILE).exists()


@pytest.mark.slow
def test_two_processes_print_what_one_prints(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    shutil.copytree(built(tmp_path_factory.getbasetemp()), tmp_path / "here", symlinks=True)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "agentcli"]
    done = subprocess.run(
        [sys.executable, *launch, "train", "runs/x", "-o", "new", "--json"],
        cwd=tmp_path / "here",
        env={**as_here(), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:6000]
    assert json.loads(done.stdout)["stage"] == "train"
    assert done.stderr.count("train: ") == 1
