"""`kill -9` of one of two processes that share a model, and of torchrun: nothing is left, and the resumed training ends with the
same bits.
"""

import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from agentcli.training.loop.snapshots import FILE
from bad_input_runs import built
from processes import BY_TWO, as_here, well_ended
from snapshot_kills import second, struck_at_a_snapshot
from stopping import left

pytestmark = pytest.mark.slow

CHANGES = ("train.sharding=fsdp", "train.epochs=20", "train.save_every_updates=7")
TRAIN = ("train", "runs/x", *(f"--set={change}" for change in CHANGES))
SHARED_BY_TWO = (*BY_TWO, "-m", "agentcli")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small runs, and `whole`, a training that nobody disturbed."""
    folder = tmp_path_factory.mktemp("killed") / "here"
    shutil.copytree(built(tmp_path_factory.getbasetemp()), folder, symlinks=True)
    finish(folder, "-o", "whole")
    return folder


def finish(folder: Path, *words: str) -> None:
    well_ended(*SHARED_BY_TWO, *TRAIN, *words, "-q", folder=folder)


@pytest.mark.parametrize(("victim", "code"), [(second, 1), (int, -signal.SIGKILL)], ids=["a process", "torchrun"])
def test_a_killed_training_leaves_nothing_and_ends_with_the_same_bits(
    folder: Path, victim: Callable[[int], int], code: int
) -> None:
    out = f"parts-{code}"
    command = [sys.executable, *SHARED_BY_TWO, *TRAIN, "-o", out]
    environment = {**as_here(), **ENVIRONMENT}
    ended = struck_at_a_snapshot(command, environment, folder / out / "snapshot" / FILE, victim, cwd=folder)
    assert ended.code == code
    assert not (folder / out / "checkpoint").exists()
    finish(folder, "-o", out, "--resume")
    assert trained(folder / out) == trained(folder / "whole")


def trained(run: Path) -> dict[str, bytes]:
    """What a training leaves, without logs and the manifest, which have the time."""
    return {name: data for name, data in left(run).items() if not name.startswith(("logs/", "manifest"))}
