"""Processes that tests start."""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

SECONDS = 120.0
"""Within which a process that was killed has ended, on a busy machine too."""


def as_here() -> dict[str, str]:
    """The environment of a process that imports what this one can."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


BY_TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
"""Begins the words of a program that two processes run."""


def well_ended(*words: str | Path, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Python with these words, a process that must end well; it has one thread and no GPU."""
    environment = {**as_here(), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, *words]
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert ended.returncode == 0, ended.stderr[-6000:]
    return ended


def below(process: int) -> list[int]:
    """The children of a process, and theirs."""
    children = []
    # A process that has just ended has no children.
    with suppress(FileNotFoundError, ProcessLookupError):
        for file in Path(f"/proc/{process}/task").glob("*/children"):
            children += [int(child) for child in file.read_text(encoding="ascii").split()]
    return [*children, *(one for child in children for one in below(child))]


def workers() -> list[int]:
    """The engine processes of this one, which may have other children too."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if b"engines.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def kill(pid: int) -> None:
    """Kills a process, and waits until it has ended."""
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)


def wait_until_gone(pid: int) -> None:
    """Returns when a process has ended."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        assert select.select([handle], [], [], SECONDS)[0], f"process {pid} goes on"
        os.close(handle)
