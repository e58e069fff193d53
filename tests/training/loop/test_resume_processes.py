"""Two processes that are stopped go on with the bits of two that were not, each with its own random state."""

import json
import shutil
from pathlib import Path

import pytest
from agentcli.training.loop.snapshots import FILE
from bad_input_runs import built
from processes import BY_TWO, well_ended
from stopping import left


@pytest.mark.slow
def test_two_processes_go_on(rollout, tmp_path):
    for name in ("trees.jsonl", "credit.jsonl", "model"):
        (tmp_path / name).symlink_to(rollout.folder / name)
    worker = Path(__file__).parents[2] / "support" / "resume_worker.py"
    well_ended(*BY_TWO, worker, tmp_path)
    for name in ("train", "sft"):
        assert left(tmp_path / f"{name}-parts") == left(tmp_path / f"{name}-whole")
        assert (tmp_path / f"{name}-parts" / "snapshot" / FILE).exists()


@pytest.mark.slow
def test_two_processes_print_what_one_prints(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    shutil.copytree(built(tmp_path_factory.getbasetemp()), tmp_path / "here", symlinks=True)
    train = ("-m", "agentcli", "train", "runs/x", "-o", "new", "--json")
    done = well_ended(*BY_TWO, *train, folder=tmp_path / "here")
    assert json.loads(done.stdout)["stage"] == "train"
    assert done.stderr.count("train: ") == 1
