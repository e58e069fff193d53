"""`kill -9` of one of two processes that share a model, and of torchrun: nothing is left, and the resumed training ends with the
same bits.
"""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from agentcli.training.loop.snapshots import FILE
from bad_input_runs import built
from processes import as_here, below
from stopping import left

pytestmark = pytest.mark.slow

SECONDS = 900.0

CHANGES = ("train.sharding=fsdp", "train.epochs=20", "train.save_every_updates=7")
TRAIN = ("train", "runs/x", *(f"--set={change}" for change in CHANGES))
SHARED_BY_TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "agentcli")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TERM": "xterm", "COLUMNS": "200"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small runs, and `whole`, a training that nobody disturbed."""
    folder = tmp_path_factory.mktemp("killed") / "here"
    shutil.copytree(built(tmp_path_factory.getbasetemp()), folder, symlinks=True)
    finish(folder, "-o", "whole")
    return folder


def start(folder: Path, *words: str, stderr: int = subprocess.PIPE) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, *SHARED_BY_TWO, *TRAIN, *words],
        cwd=folder,
        env={**as_here(), **ENVIRONMENT},
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )


def finish(folder: Path, *words: str) -> None:
    process = start(folder, *words, "-q")
    _, stderr = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, stderr.decode()[-6000:]


def second(launcher: int) -> int:
    """The process that is not the first."""
    (number,) = [pid for pid in below(launcher) if b"\0RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes()]
    return number


def kill_at_a_snapshot(folder: Path, out: str, victim: Callable[[int], int]) -> int:
    """Kills `victim` of a training that has written a snapshot. Gives torchrun's code once nothing of it runs any more."""
    terminal, theirs = pty.openpty()
    process = start(folder, "-o", out, stderr=theirs)
    os.close(theirs)
    snapshot = folder / out / "snapshot" / FILE
    shown = b""
    # The bar moves after every update.
    while not snapshot.exists():
        assert select.select([terminal], [], [], SECONDS)[0], shown.decode()
        shown += os.read(terminal, 65536)
    handles = [os.pidfd_open(pid) for pid in (process.pid, *below(process.pid))]
    assert len(handles) == 3
    os.kill(victim(process.pid), signal.SIGKILL)
    for handle in handles:
        wait_for(handle, terminal)
    os.close(terminal)
    return process.wait()


def wait_for(handle: int, terminal: int) -> None:
    """Waits for the end of a process, and reads what is shown meanwhile: a full terminal would hold it up."""
    while ready := select.select([handle, terminal], [], [], SECONDS)[0]:
        if handle in ready:
            os.close(handle)
            return
        try:
            os.read(terminal, 65536)
        except OSError:  # nobody writes there any more
            terminal = handle
    pytest.fail("a process was left")


@pytest.mark.parametrize(("victim", "code"), [(second, 1), (int, -signal.SIGKILL)], ids=["a process", "torchrun"])
def test_a_killed_training_leaves_nothing_and_ends_with_the_same_bits(
    folder: Path, victim: Callable[[int], int], code: int
) -> None:
    out = f"parts-{code}"
    assert kill_at_a_snapshot(folder, out, victim) == code
    assert not (folder / out / "checkpoint").exists()
    finish(folder, "-o", out, "--resume")
    assert trained(folder / out) == trained(folder / "whole")


def trained(run: Path) -> dict[str, bytes]:
    """What a training leaves, without logs and the manifest, which have the time."""
    return {name: data for name, data in left(run).items() if not name.startswith(("logs/", "manifest"))}
