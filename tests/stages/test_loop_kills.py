"""A loop that keeps one checkpoint and evaluates in between, killed before many of its changes of the file system and resumed: the
bytes of an unbroken one, nothing lost on the way, nothing left over."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bad_input_runs import START, folder
from command_line import agentcli
from kill_and_resume import digest
from processes import as_here

__all__ = ["folder"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("folder")]

KEEPING = ("run.keep=1", "run.evaluate_every=2", "evaluation.temperature=0", "train.save_every_updates=1")
LOOP = (
    "run",
    "--preset",
    "./toy.yaml",
    "--model",
    START,
    "--iterations",
    "4",
    *(f"--set={change}" for change in KEEPING),
)
STRIKES = (25, 71, 44, 90, 58, 33, 76, 62, 95, 49)
"""The change of the file system that each attempt does not come to."""
NEVER = 1_000_000


class Attempts:
    """A command that is killed and typed again."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "struck", *words]
        self._process = subprocess.Popen(
            command, env=as_here(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def code(self, strike: int) -> int:
        """The exit code of an attempt that is killed before its change number `strike`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(strike, file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate()


def links(run: str) -> dict[str, Path]:
    """The links of a loop that lead to weights, and where to."""
    paths = {name: Path(run, name) for name in ("checkpoint", "best")}
    return {name: path.readlink() for name, path in paths.items() if (path / "model.safetensors").exists()}


def test_a_loop_that_is_killed_again_and_again_leaves_what_an_unbroken_one_leaves() -> None:
    assert agentcli(*LOOP, "-o", "loop", "-q").code == 0
    Path("loop").rename("whole")
    held: set[str] = set()
    attempts = Attempts(*LOOP, "-o", "loop", "--resume", "-q")
    for strike in STRIKES:
        assert attempts.code(strike) == -signal.SIGKILL
        assert held <= set(links("loop")), "weights that were there are gone"
        held = set(links("loop"))
    assert attempts.code(NEVER) == 0
    attempts.end()
    assert digest(Path("loop")) == digest(Path("whole"))
    assert links("loop") == links("whole") != {}
    assert everything("loop") == everything("whole")


def everything(run: str) -> list[str]:
    """Names of all files, folders and links, without logs and a killed process's lock."""
    paths = [path.relative_to(run) for path in Path(run).rglob("*")]
    return sorted(str(path) for path in paths if "logs" not in path.parts and path.name != ".lock")
