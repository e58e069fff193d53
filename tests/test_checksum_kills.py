"""A command that writes checked files, killed before every third of its changes of the file system: no run refuses itself."""

import signal
import subprocess
import sys

import pytest
from bad_input_runs import EVAL, agentcli, folder, quietly
from processes import as_here

__all__ = ["folder"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("folder")]

CREDIT = ("assign-credit", "runs/x", "--set", "credit.success_reward=2", "--overwrite", "-q")
EVALUATED = (*EVAL[:-1], "--policy", "random", "--overwrite", "-q")
TRAINED = ("train", "runs/x", "--model", "runs/sft/checkpoint", "--set", "train.epochs=1", "--overwrite", "-q")


@pytest.mark.parametrize("words", [CREDIT, EVALUATED, TRAINED], ids=lambda words: str(words[0]))
def test_no_run_refuses_itself_after_a_kill(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "struck", *words]
    process = subprocess.Popen(command, env=as_here(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    kills = 0
    for strike in range(1, 200, 3):
        print(strike, file=process.stdin, flush=True)
        code = int(process.stdout.readline())
        answer = agentcli("validate", "runs/x")
        assert "changed after" not in answer.stderr, (strike, answer.stderr)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
    process.communicate()
    assert kills > 3
    assert answer.code == 0, answer
    assert "without a checksum" not in answer.stderr


def test_an_evaluation_that_was_killed_is_resumed() -> None:
    """Its rows are cut and sorted while the manifest no longer knows them."""
    resumed = 0
    for strike in range(4, 40, 5):
        command = [sys.executable, "-m", "struck", *EVALUATED]
        subprocess.run(command, env=as_here(), input=f"{strike}\n", capture_output=True, text=True, check=True)
        answer = quietly(*EVALUATED[:-2], "--resume")
        # Killed before it wrote anything, it leaves the evaluation before it, by another policy.
        if "--resume with other settings" not in answer.stderr:
            assert answer.code == 0, (strike, answer)
            resumed += 1
        assert agentcli("validate", "runs/x").code == 0
    assert resumed > 3
