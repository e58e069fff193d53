"""Trainings that are stopped after an update and called again, and what two trainings left, compared to the bit."""

import re

import pytest
from agentcli.records.training_settings import SftSettings, TinySettings, TrainSettings
from agentcli.training.imitation import ImitationTraining
from agentcli.training.loop.job import Job
from agentcli.training.policy_gradient.training import PolicyTraining
from tiny_rollout import words


class Stopped(Exception):
    """Raised between two updates, like a kill that can be caught."""


def stop_after(update):
    def progress(done, total, figures):
        if figures and done == update:
            raise Stopped

    return progress


TRAIN = {
    "aggregate": "step",
    "learning_rate": 1e-3,
    "beta": 0.05,
    "rows_per_update": 8,
    "rows_per_microbatch": 3,
    "epochs": 2,
    "warmup_updates": 5,
    "weight_decay": 0.1,
    "save_every_updates": 3,
}
SFT = {
    "model": "tiny",
    "tiny": TinySettings(hidden=32, layers=2, heads=2, kv_heads=1, intermediate=48),
    "updates": 8,
    "samples_per_update": 9,
    "samples_per_microbatch": 3,
    "learning_rate": 3e-3,
    "warmup_ratio": 0.3,
    "save_every_updates": 3,
}


def train(
    rollout, folder, trees=None, model=None, seed=0, stop=None, optimizer_in=None, reference=None, resumes=True, **given
):
    """A policy gradient into `folder`, with a snapshot; gives the statistics."""
    job = Job(
        str(model or rollout.model),
        folder / "checkpoint",
        TrainSettings(**{**TRAIN, **given}),
        seed,
        folder / "metrics.jsonl",
        reference=reference,
        optimizer_in=optimizer_in,
        optimizer_out=folder / "optimizer.safetensors",
        progress=stop_after(stop),
        snapshot=folder / "snapshot",
        resumes=resumes,
    )
    return PolicyTraining(job).train(trees or rollout.trees, rollout.credit)


def sft(rollout, folder, trees=None, seed=0, stop=None, **given):
    """An imitation into `folder`, with a snapshot; gives the statistics."""
    settings = SftSettings(**{**SFT, **given})
    job = Job(
        settings.model,
        folder / "checkpoint",
        settings,
        seed,
        folder / "metrics.jsonl",
        progress=stop_after(stop),
        snapshot=folder / "snapshot",
    )
    return ImitationTraining(job, [], words).train([trees or rollout.trees])


def stopped(call, rollout, folder, update, **given):
    """The call, stopped after `update`: nothing but metrics, and a snapshot if one was due, may be there."""
    with pytest.raises(Stopped):
        call(rollout, folder, stop=update, **given)
    assert not (folder / "checkpoint").exists()


def left(folder):
    """Bytes by name of everything a training leaves, without times and without the snapshot."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "snapshot" not in path.parts]
    found = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    found["metrics.jsonl"] = re.sub(rb'"seconds":[\d.]+', b"", found["metrics.jsonl"])
    return found
