"""Loops whose iterations are trained in one or two processes of their own: the bytes of the stages typed by hand, also where the
child, one of two processes or the loop is killed."""

import functools
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from agentcli.records.files import read_records
from agentcli.training.loop.snapshots import FILE
from agentcli.training.metrics import TrainMetrics
from command_line import succeeded
from compared_loops import made
from kill_and_resume import digest
from processes import as_here, below
from safetensors.torch import load_file
from snapshot_kills import second, struck_at_a_snapshot

pytestmark = pytest.mark.slow

SECONDS = 900.0
LOOP = ("run", "--preset", "./toy.yaml", "--model", "sft/checkpoint", "--set=run.keep=null")
TWO = "run.processes=2"
FULL: tuple[str, ...] = ("train.epochs=1",)
LORA = ("train.lora.rank=4", "train.packing=off")
SHARED = "train.sharding=fsdp"
SHARED_BY_TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "agentcli")


@pytest.fixture(autouse=True)
def folder(empty_folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a policy of the toy world and its settings."""
    base = made(tmp_path_factory.getbasetemp())
    for name in ("toy.yaml", "sft"):
        (empty_folder / name).symlink_to(base / name)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return empty_folder


def loop(out: str, *changes: str, iterations: int = 3) -> dict[str, str]:
    """The digest of a loop."""
    succeeded(*LOOP, "-q", "--iterations", str(iterations), *(f"--set={change}" for change in changes), "-o", out)
    return digest(Path(out))


def figures(out: str) -> list[tuple[float, float]]:
    """Loss and norm of the gradient at every update of the first iteration."""
    lines = read_records(Path(out, "iteration_000/metrics.jsonl"), TrainMetrics)
    return [(line.loss, line.grad_norm) for line in lines]


def weights(out: str) -> dict[str, torch.Tensor]:
    """The weights after the first iteration. A key's bias has next to no gradient; AdamW makes a step of its rounding."""
    (file,) = Path(out, "iteration_000/checkpoint").glob("*.safetensors")
    return {name: tensor for name, tensor in load_file(file).items() if not name.endswith("k_proj.bias")}


@pytest.mark.parametrize("changes", [FULL, LORA], ids=["full", "lora"])
def test_three_iterations_in_a_child_are_those_in_this_process(changes: tuple[str, ...]) -> None:
    assert loop("child", *changes, "run.train_in=child") == loop("here", *changes)


@pytest.mark.parametrize("sharding", ["none", "fsdp"])
@pytest.mark.parametrize("changes", [FULL, LORA], ids=["full", "lora"])
def test_two_processes_differ_from_one_by_the_order_of_sums(changes: tuple[str, ...], sharding: str) -> None:
    """Of the same trees, that is in the first iteration: later ones sample from other bits."""
    loop("two", *changes, f"train.sharding={sharding}", TWO)
    loop("one", *changes, iterations=1)
    for name in ("trees.jsonl", "credit/grpo.jsonl"):
        assert Path("one/iteration_000", name).read_bytes() == Path("two/iteration_000", name).read_bytes()
    for one, two in zip(figures("one"), figures("two"), strict=True):
        assert two == pytest.approx(one, rel=1e-5, abs=1e-6)
    before, after = weights("one"), weights("two")
    assert before.keys() == after.keys()
    gap = torch.cat([(after[name] - before[name]).flatten() for name in before])
    # An update moves a weight by up to 1e-3. AdamW makes some of a rounding where the gradient is next to nothing, and
    # how much of it depends on the processor.
    assert float(gap.square().mean().sqrt()) < 1e-6
    assert float(gap.abs().max()) < 1e-4


def test_the_loop_s_processes_train_as_torchrun_typed_by_hand() -> None:
    loop("two", *FULL, TWO, iterations=1)
    shutil.copytree("two/iteration_000", "hand", ignore=shutil.ignore_patterns("checkpoint", "optimizer*", "metrics*"))
    words = [sys.executable, *SHARED_BY_TWO, "train", "hand", "--set", "train.reference=sft/checkpoint", "-q"]
    done = subprocess.run([*words, "--overwrite"], env=as_here(), capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    for name in ("checkpoint/model.safetensors", "optimizer.safetensors"):
        assert Path("hand", name).read_bytes() == Path("two/iteration_000", name).read_bytes()


def child(loop: int) -> int:
    """The first process that a loop started to train."""
    return next(pid for pid in below(loop) if b"stages.update" in Path(f"/proc/{pid}/cmdline").read_bytes())


LONG = ("train.epochs=12", "train.save_every_updates=7", "run.train_in=child")


@pytest.fixture(scope="module")
def whole() -> Callable[[int], dict[str, str]]:
    """The digest of a loop that nobody disturbed, in so many processes."""

    @functools.cache
    def undisturbed(processes: int) -> dict[str, str]:
        return loop(f"whole-{processes}", *LONG, f"run.processes={processes}", iterations=2)

    return undisturbed


@pytest.mark.parametrize(
    ("processes", "victim", "strike", "code"),
    [
        (1, child, signal.SIGKILL, 1),
        (1, int, signal.SIGINT, 130),
        (2, second, signal.SIGKILL, 1),
        (2, child, signal.SIGKILL, 1),
        (2, int, signal.SIGKILL, -signal.SIGKILL),
    ],
    ids=["the child", "Ctrl-C", "second of two", "first of two", "the loop"],
)
def test_whatever_is_killed_nothing_is_left_and_a_resume_has_the_same_bytes(
    folder: Path,
    whole: Callable[[int], dict[str, str]],
    processes: int,
    victim: Callable[[int], int],
    strike: signal.Signals,
    code: int,
) -> None:
    changes = (*LONG, f"run.processes={processes}")
    words = [*LOOP, "--iterations", "2", *(f"--set={change}" for change in changes), "-o", "parts"]
    snapshot = folder / "parts/iteration_000/snapshot" / FILE
    ended = struck_at_a_snapshot([sys.executable, "-m", "agentcli", *words], as_here(), snapshot, victim, strike)
    assert ended.code == code, ended.shown
    assert ended.shown.count("error:") == (code > 0), ended.shown
    if victim in (child, second):
        rank = int(victim is second)
        assert f"process {rank} of {processes} ended with SIGKILL" in " ".join(ended.shown.split())
        assert "--resume" in ended.shown
    assert not Path("parts/iteration_000/checkpoint").exists()
    succeeded(*words, "--resume", "-q")
    assert digest(Path("parts")) == whole(processes)
