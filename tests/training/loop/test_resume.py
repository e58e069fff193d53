"""A training that is stopped and called again ends with the bits of one that was not: weights, moments, metrics, statistics."""

import json
import random
import shutil

import msgspec
import numpy as np
import pytest
import torch
from agentcli.records.training_settings import LoraSettings, TrainSettings
from agentcli.training.loop import checkpoints
from agentcli.training.loop.job import Job
from agentcli.training.loop.snapshots import FILE, random_state, restore_random_state
from agentcli.training.policy_gradient.training import PolicyTraining
from refusal import refused
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from stopping import left, sft, stopped, train
from tiny_rollout import write

DROPOUT = LoraSettings(rank=4, alpha=8, dropout=0.3)


@pytest.mark.parametrize(
    ("call", "settings"),
    [
        (train, {}),
        pytest.param(train, {"lora": DROPOUT}, marks=pytest.mark.slow),
        pytest.param(
            train, {"recompute_logprobs": True, "aggregate": "token", "rows_per_microbatch": 8}, marks=pytest.mark.slow
        ),
        (sft, {}),
        pytest.param(sft, {"lora": DROPOUT, "schedule": "linear"}, marks=pytest.mark.slow),
    ],
    ids=["train full", "train lora", "train recomputed", "sft full", "sft lora"],
)
def test_a_stopped_training_ends_with_the_same_bits(rollout, tmp_path, call, settings):
    if call is sft and "lora" in settings:
        settings = {**settings, "model": str(rollout.model)}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    statistics = call(rollout, whole, **settings)
    stopped(call, rollout, parts, 2, **settings)
    assert not (parts / "snapshot").exists()
    stopped(call, rollout, parts, 4, **settings)
    stopped(call, rollout, parts, 7, **settings)
    assert call(rollout, parts, **settings) == statistics
    assert left(parts) == left(whole)
    assert statistics["updates"] == 8
    assert [path.name for path in (parts / "snapshot").iterdir()] == [FILE]


@pytest.mark.slow
def test_goes_on_from_a_snapshot_of_the_last_update(rollout, tmp_path):
    for call in (train, sft):
        whole, parts = tmp_path / f"{call.__name__}-whole", tmp_path / f"{call.__name__}-parts"
        statistics = call(rollout, whole)
        stopped(call, rollout, parts, 8, save_every_updates=4)
        assert call(rollout, parts, save_every_updates=4) == statistics
        assert call(rollout, parts, save_every_updates=4) == statistics
        assert left(parts) == left(whole)


@pytest.mark.slow
def test_a_training_that_carries_an_optimiser_goes_on_with_it(rollout, tmp_path):
    train(rollout, tmp_path / "first")
    given = {"model": tmp_path / "first" / "checkpoint", "optimizer_in": tmp_path / "first" / "optimizer.safetensors"}
    statistics = train(rollout, tmp_path / "whole", **given)
    assert statistics["updates_before"] == 8
    stopped(train, rollout, tmp_path / "parts", 5, **given)
    assert train(rollout, tmp_path / "parts", **given) == statistics
    assert left(tmp_path / "parts") == left(tmp_path / "whole")
    stopped(train, rollout, tmp_path / "other", 5, **given)
    refused(lambda: train(rollout, tmp_path / "other", model=given["model"]), 3, names=("updates before", "8", "0"))


@pytest.mark.slow
def test_lines_of_several_updates_are_the_same_lines(rollout, tmp_path):
    """sft writes a line for every second update here; a snapshot falls between two lines."""
    settings = {"updates": 201, "samples_per_update": 2, "samples_per_microbatch": 2, "save_every_updates": 45}
    statistics = sft(rollout, tmp_path / "whole", **settings)
    stopped(sft, rollout, tmp_path / "parts", 176, **settings)
    assert sft(rollout, tmp_path / "parts", **settings) == statistics
    assert left(tmp_path / "parts") == left(tmp_path / "whole")
    updates = [json.loads(line)["update"] for line in (tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()]
    assert updates == [*range(2, 201, 2), 201]


def test_a_torn_metrics_line_is_cut_off_and_a_missing_one_is_refused(rollout, tmp_path):
    train(rollout, tmp_path / "whole")
    stopped(train, rollout, tmp_path / "parts", 5)
    metrics = tmp_path / "parts" / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-20])
    train(rollout, tmp_path / "parts")
    assert left(tmp_path / "parts") == left(tmp_path / "whole")
    stopped(train, rollout, tmp_path / "short", 5)
    metrics = tmp_path / "short" / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:2]))
    refused(lambda: train(rollout, tmp_path / "short"), 3, names=("metrics.jsonl", "2", "3"), remedy="--overwrite")


@pytest.mark.parametrize(
    ("given", "difference"),
    [
        ({"epochs": 3}, "updates: 8, now 12"),
        ({"learning_rate": 2e-3}, "other settings"),
        ({"seed": 1}, "other rows"),
        ({"trees": "changed"}, "other rows"),
        ({"model": "moved"}, "other starting model"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_a_snapshot_of_another_training(rollout, tmp_path, given, difference):
    folder = tmp_path / "run"
    stopped(train, rollout, folder, 4)
    before = left(folder)
    if "trees" in given:
        trees = [msgspec.convert(msgspec.to_builtins(tree), type(tree)) for tree in rollout.tree_list]
        trees[3].steps[1].logprobs[0] -= 0.25
        given = {"trees": write(tmp_path / "changed.jsonl", trees)}
    if "model" in given:
        weights = load_file(rollout.model / "model.safetensors")
        shutil.copytree(rollout.model, tmp_path / "moved")
        save_file({name: value + 0.01 for name, value in weights.items()}, tmp_path / "moved" / "model.safetensors")
        given = {"model": tmp_path / "moved"}
    refused(lambda: train(rollout, folder, **given), 3, (FILE, difference), remedy="--overwrite")
    assert left(folder) == before


@pytest.mark.parametrize("given", [{}, {"epochs": 1}], ids=["the same", "another"])
def test_overwriting_begins_anew_whatever_snapshot_is_there(rollout, tmp_path, given):
    statistics = train(rollout, tmp_path / "whole", **given)
    stopped(train, rollout, tmp_path / "parts", 4)
    assert train(rollout, tmp_path / "parts", resumes=False, **given) == statistics
    assert left(tmp_path / "parts") == left(tmp_path / "whole")
    shutil.rmtree(tmp_path / "parts/checkpoint")
    stopped(train, rollout, tmp_path / "parts", 1, resumes=False)
    assert not (tmp_path / "parts/snapshot" / FILE).exists(), "a resume would go on from an older training"


def test_sft_refuses_a_snapshot_of_other_samples_or_shape(rollout, tmp_path):
    given = {"model": str(rollout.model)}
    stopped(sft, rollout, tmp_path, 4, **given)
    refused(
        lambda: sft(rollout, tmp_path, trees=write(tmp_path / "less.jsonl", rollout.tree_list[:5]), **given),
        3,
        names="samples",
        remedy="--overwrite",
    )
    refused(lambda: sft(rollout, tmp_path, schedule="linear", **given), 3, names="settings", remedy="--overwrite")


def tensors_of(path):
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def drop(tensors, metadata):
    return {name: value for name, value in tensors.items() if name != "random/torch"}, metadata


def rename(tensors, metadata):
    name = next(name for name in tensors if name.startswith("weights/"))
    return {**{key: value for key, value in tensors.items() if key != name}, "weights/other": tensors[name]}, metadata


def shorten(tensors, metadata):
    name = next(name for name in tensors if name.startswith("exp_avg_sq/"))
    return {**tensors, name: tensors[name][:-1].clone()}, metadata


def forget(tensors, metadata):
    return tensors, {"snapshot": metadata["snapshot"].replace('"update"', '"updated"')}


def unlabel(tensors, metadata):
    return tensors, None


@pytest.mark.parametrize("change", [drop, rename, shorten, forget, unlabel, "cut", "text"])
def test_a_damaged_snapshot_is_one_line(rollout, tmp_path, change):
    stopped(train, rollout, tmp_path, 4)
    path = tmp_path / "snapshot" / FILE
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-1000])
    elif change == "text":
        path.write_text("{}")
    else:
        tensors, metadata = change(*tensors_of(path))
        save_file(tensors, path, metadata)
    refused(lambda: train(rollout, tmp_path), 3, str(path), remedy="--overwrite")


def test_a_write_that_is_cut_short_leaves_the_old_snapshot(rollout, tmp_path, monkeypatch):
    train(rollout, tmp_path / "whole")
    stopped(train, rollout, tmp_path / "parts", 4)
    old = (tmp_path / "parts" / "snapshot" / FILE).read_bytes()
    real = checkpoints.save_file

    def torn(tensors, path, metadata):
        real(tensors, path, metadata)
        path.write_bytes(path.read_bytes()[:500])
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save_file", torn)
    with pytest.raises(KeyboardInterrupt):
        train(rollout, tmp_path / "parts")
    monkeypatch.undo()
    assert (tmp_path / "parts" / "snapshot" / FILE).read_bytes() == old
    train(rollout, tmp_path / "parts")
    assert left(tmp_path / "parts") == left(tmp_path / "whole")


def test_random_states_come_back():
    random.gauss(0, 1)  # leaves a second number behind, as numpy's does
    np.random.standard_normal()
    kept = random_state(torch.device("cpu"))

    def draw():
        return [random.random(), random.gauss(0, 1), *np.random.standard_normal(3), *torch.rand(3).tolist()]

    first = draw()
    assert draw() != first
    restore_random_state(kept, torch.device("cpu"))
    assert draw() == first


def test_without_a_snapshot_folder_nothing_is_kept(rollout, tmp_path):
    settings = TrainSettings(aggregate="step", save_every_updates=1, rows_per_update=8)
    job = Job(str(rollout.model), tmp_path / "out", settings, 0, tmp_path / "m.jsonl")
    PolicyTraining(job).train(rollout.trees, rollout.credit)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.jsonl", "out"]
