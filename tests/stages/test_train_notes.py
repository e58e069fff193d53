"""What train says once: log-probabilities that it computes itself, and a sampler that is far from it."""

import json
from pathlib import Path

import pytest
from agentcli.records.files import RecordWriter, read_json, read_records
from agentcli.records.types import Manifest, Tree
from bad_input_runs import START, folder
from command_line import succeeded

__all__ = ["folder"]
TRAIN = ("train", "runs/x", "--model", START, "--overwrite")


def said(*changes: str) -> list[str]:
    """The lines of a training with these settings that are about log-probabilities."""
    sets = [word for change in changes for word in ("--set", change)]
    done = succeeded(*TRAIN, *sets)
    return [line for line in done.stderr.splitlines() if "recompute_logprobs" in line or "gap_mean" in line]


@pytest.mark.usefixtures("folder")
def test_trees_that_are_still_to_come_are_said() -> None:
    manifest = Path("runs/x/manifest.json")
    known = json.loads(manifest.read_text(encoding="utf-8"))
    del known["stages"]["rollout"]
    manifest.write_text(json.dumps(known), encoding="utf-8")
    done = succeeded(*TRAIN)
    assert "warning: runs/x/trees.jsonl: rollout has not ended; go on with: agentcli rollout --resume" in done.stderr


@pytest.mark.usefixtures("folder")
def test_a_wide_gap_is_one_line_that_names_the_setting() -> None:
    assert said() == []
    path = Path("runs/x/trees.jsonl")
    trees = list(read_records(path, Tree))
    for tree in trees:
        for step in tree.steps:
            step.logprobs = [logprob - 0.06 for logprob in step.logprobs]
    path.unlink()
    with RecordWriter(path) as writer:
        for tree in trees:
            writer.write(tree)
    (line,) = said()
    assert "warning" in line
    assert "gap_mean" in line
    assert "--set train.importance_cap=2" in line
    # Its own remedy ends it, and is said to imply another setting.
    (line,) = said("train.importance_cap=2")
    assert "train.recompute_logprobs" in line
    statistics = read_json(Path("runs/x/manifest.json"), Manifest).stages["train"].statistics
    assert statistics["logprob_gap"]["mean"] >= 0.05
    assert said("train.importance_cap=2", "train.recompute_logprobs=true") == []
