"""Ctrl-C and SIGKILL to real processes at known moments: exit code 130 and one line that says how to go on; what is typed there
leads to the same bytes as an undisturbed command. scripts/kill_and_resume.py strikes at random ones, more often.

Rollouts and loops are stopped at a gate in their world, a training when its bar shows the first loss.
"""

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from agentcli.records.files import read_json, read_records
from agentcli.records.types import Manifest, Tree
from bad_input_runs import START, agentcli, folder, write
from command_line import Answer
from processes import as_here
from refusal import refused

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("folder")

SECONDS = 300.0
GATED = write("gated.yaml", 'environment: {name: "gated_world:GatedWorld", options: {tasks: 4, length: 3}}')
ROLLOUT = ("rollout", "-c", "toy.yaml", "-c", "gated.yaml", "--policy", "search", "--concurrency", "1")
LOOP = ("run", "--preset", "./toy.yaml", "-c", "gated.yaml", "--model", START, "--iterations", "2")
TRAIN = ("train", "runs/x", "--set", "train.epochs=25", "--set", "train.save_every_updates=7")
WEIGHTS = ("checkpoint/model.safetensors", "optimizer.safetensors")


def start(*words: str, **environment: str) -> "subprocess.Popen[str]":
    """The installed program in a session of its own, as a shell starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "agentcli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**as_here(), **environment},
    )


def struck_at_gate(task: str, *words: str, strike: int, times: int = 1, engines: bool = False) -> Answer:
    """What a command answers that is struck when it begins `task`. Ctrl-C goes to all its processes, SIGKILL to the first, or
    to its engine processes."""
    gate = Path("gate")
    gate.mkdir()
    for name in ("reached", "on"):
        os.mkfifo(gate / name)
    reached = os.open(gate / "reached", os.O_RDONLY | os.O_NONBLOCK)
    on = os.open(gate / "on", os.O_RDWR)  # for writing alone it would wait for a reader, who may be dead by then
    process = start(*words, "-q", GATE=str(gate.resolve()), GATE_TASK=task)
    try:
        if not select.select([reached], [], [], SECONDS)[0]:
            process.kill()
            pytest.fail(f"never came to {task}: {process.communicate()}")
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        for _ in range(times):
            if strike == signal.SIGINT:
                os.killpg(process.pid, strike)
            else:
                for victim in workers if engines else [process.pid]:
                    os.kill(int(victim), strike)
        # One that is dying may still take the first; the call that is made anew waits for the second.
        os.write(on, b"..")
        stdout, stderr = process.communicate(timeout=SECONDS)
    finally:
        os.close(reached)
        os.close(on)
    return Answer(process.returncode, stdout, stderr)


def typed(answer: Answer) -> list[str]:
    """The words to type that an interrupted command names."""
    refused(answer, 130, remedy="agentcli ")
    return shlex.split(answer.stderr.partition("go on with: agentcli ")[2])


def go_on(words: list[str]) -> None:
    again = agentcli(*words)
    assert again.code == 0, again


@pytest.mark.parametrize("strike", [signal.SIGINT, signal.SIGKILL])
def test_a_rollout_goes_on_to_the_same_bytes(strike: signal.Signals) -> None:
    GATED()
    words = (*ROLLOUT, "-o")
    go_on([*words, "whole"])
    answer = struck_at_gate("train/2", *words, "parts", strike=strike)
    kept = [tree.task.id for tree in read_records(Path("parts/trees.jsonl"), Tree)]
    assert kept in (["train/0"], ["train/0", "train/1"]), "a tree is written while the next one begins"
    assert not Path("parts/manifest.json").exists()
    if strike == signal.SIGINT:
        assert typed(answer) == [*words, "parts", "-q", "--resume"]
        assert Path("parts/logs/rollout-001.log").read_text(encoding="utf-8").endswith("WARNING interrupted\n")
        assert not Path("parts/.lock").exists()
    else:
        assert (answer.code, answer.stdout, answer.stderr) == (-9, "", "")
    before = Path("parts/trees.jsonl").read_bytes()
    go_on([*words, "parts", "--resume"])
    after = Path("parts/trees.jsonl").read_bytes()
    assert after.startswith(before)
    assert after == Path("whole/trees.jsonl").read_bytes()
    ledgers = [read_json(Path(run, "manifest.json"), Manifest).stages["rollout"].ledger for run in ("whole", "parts")]
    assert ledgers[0] == ledgers[1]


def test_a_rollout_whose_engine_process_is_killed_makes_the_call_anew() -> None:
    GATED()
    words = (*ROLLOUT, "-o")
    go_on([*words, "whole"])
    answer = struck_at_gate("train/2", *words, "parts", strike=signal.SIGKILL, engines=True)
    assert (answer.code, answer.stderr) == (0, "")
    counts = read_json(Path("parts/manifest.json"), Manifest).stages["rollout"].counts
    assert (counts["errored"], counts["trees"]) == (0, 4)
    assert Path("parts/trees.jsonl").read_bytes() == Path("whole/trees.jsonl").read_bytes()


def test_an_interruption_before_the_first_tree_leaves_nothing() -> None:
    GATED()
    words = (*ROLLOUT, "-o", "parts")
    assert typed(struck_at_gate("train/0", *words, strike=signal.SIGINT)) == [*words, "-q", "--resume"]
    assert not Path("parts").exists()
    go_on([*words, "--resume"])


def test_a_second_ctrl_c_does_not_wait_and_is_told_as_quietly() -> None:
    GATED()
    words = (*ROLLOUT, "-o", "parts")
    go_on(typed(struck_at_gate("train/2", *words, strike=signal.SIGINT, times=2)))


@pytest.mark.slow
@pytest.mark.parametrize("strike", [signal.SIGINT, signal.SIGKILL])
def test_a_loop_goes_on_to_the_same_bytes(strike: signal.Signals) -> None:
    GATED()
    go_on([*LOOP, "-o", "whole"])
    second = next(read_records(Path("whole/iteration_001/trees.jsonl"), Tree))
    answer = struck_at_gate(second.task.id, *LOOP, "-o", "parts", strike=strike)
    assert Path("parts/iteration_000/manifest.json").exists()
    assert not Path("parts/iteration_001/manifest.json").exists()
    if strike == signal.SIGINT:
        go_on(typed(answer))
    else:
        assert (answer.code, answer.stdout, answer.stderr) == (-9, "", "")
        go_on([*LOOP, "-o", "parts", "--resume"])
    for name in ("trees.jsonl", "credit/grpo.jsonl", *WEIGHTS):
        for iteration in ("iteration_000", "iteration_001"):
            whole, parts = (Path(run, iteration, name).read_bytes() for run in ("whole", "parts"))
            assert whole == parts, (iteration, name)
    assert Path("parts/checkpoint").readlink() == Path("iteration_001/checkpoint")


@pytest.mark.slow
def test_a_training_goes_on_to_the_same_bytes() -> None:
    go_on([*TRAIN, "-o", "whole"])
    code, shown = interrupted_at_its_bar(*TRAIN, "-o", "parts")
    assert code == 130
    assert "Traceback" not in shown
    last = shown.replace("\r", "").rstrip("\n").rpartition("\n")[2]
    line = last[last.index("error: ") :]
    updates = len(Path("parts/metrics.jsonl").read_bytes().splitlines())
    assert 0 < updates < len(Path("whole/metrics.jsonl").read_bytes().splitlines())
    assert not Path("parts/checkpoint").exists()
    go_on(typed(Answer(code, "", f"{line}\n")))
    for name in WEIGHTS:
        assert Path("parts", name).read_bytes() == Path("whole", name).read_bytes(), name
    assert figures("parts") == figures("whole")
    assert not Path("parts/snapshot").exists()


def figures(run: str) -> str:
    """metrics.jsonl without what clocks say."""
    return re.sub(r'"seconds":[\d.]+', "", Path(run, "metrics.jsonl").read_text(encoding="utf-8"))


def interrupted_at_its_bar(*words: str) -> tuple[int, str]:
    """Exit code and what the terminal showed of a command that gets Ctrl-C once its bar shows a loss."""
    terminal, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "agentcli", *words],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "300"},
    )
    os.close(theirs)
    shown, struck = b"", False
    while select.select([terminal], [], [], SECONDS)[0]:
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # the other end was closed
            break
        if b"loss" in shown and not struck:
            os.killpg(process.pid, signal.SIGINT)
            struck = True
    os.close(terminal)
    return process.wait(timeout=SECONDS), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
