"""sft and train on a policy that sees: they learn from pictures, score what was sampled, and resume to the bit."""

import msgspec
import pytest
import torch
from agentcli.policies.load import load_model
from agentcli.policies.sight import load_sight
from agentcli.records.files import read_records
from agentcli.records.pictures import picture_file
from agentcli.records.training_settings import LoraSettings, TrainSettings
from agentcli.records.types import Tree
from agentcli.training.loop.job import Job
from agentcli.training.metrics import TrainMetrics
from agentcli.training.objectives import make_objective
from refusal import refused
from seeing import picture, seeing_rollout
from stopping import left, sft, stopped, train
from tiny_rollout import write
from transformers import AutoModelForImageTextToText

UNREACHED = "vision_tower.post_layernorm"
"""Behind the layer that the model looks through."""


@pytest.fixture(scope="module")
def pictured(tmp_path_factory):
    return seeing_rollout(tmp_path_factory.mktemp("pictured"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "settings"),
    [(train, {}), (sft, {"samples_per_update": 6}), pytest.param(train, {"lora": LoraSettings(rank=4, alpha=8)})],
    ids=["train", "sft tiny", "train lora"],
)
def test_a_stopped_training_ends_with_the_same_bits(pictured, tmp_path, call, settings):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    settings = {**settings, "save_every_updates": 1}
    statistics = call(pictured, whole, **settings)
    stopped(call, pictured, parts, 2, **settings)
    assert call(pictured, parts, **settings) == statistics
    assert left(parts) == left(whole)


def test_the_trainer_scores_what_was_sampled(pictured, tmp_path):
    statistics = train(pictured, tmp_path, beta=0.0, rows_per_update=64, epochs=1, packing="auto")
    assert statistics["logprob_gap"]["max"] < 1e-5
    assert not statistics["packed"]
    (line,) = read_records(tmp_path / "metrics.jsonl", TrainMetrics)
    assert line.gap_max < 1e-5
    assert line.ratio_max == pytest.approx(1, abs=1e-5)


def test_rows_in_company_are_what_they_are_alone(pictured, tmp_path):
    """One update of all rows, in microbatches of three and all at once."""
    lines = []
    for rows in (3, 64):
        folder = tmp_path / str(rows)
        train(pictured, folder, beta=0.0, rows_per_update=64, epochs=1, rows_per_microbatch=rows)
        lines += read_records(folder / "metrics.jsonl", TrainMetrics)
    parts, whole = lines
    assert parts.loss == pytest.approx(whole.loss, abs=1e-6)
    assert parts.grad_norm == pytest.approx(whole.grad_norm, rel=1e-4)
    assert whole.grad_norm > 0.1


def test_the_eye_learns_and_is_saved(pictured, tmp_path):
    before = load_model(str(pictured.model)).state_dict()
    train(pictured, tmp_path, beta=0.0)
    assert load_sight(str(tmp_path / "checkpoint")) is not None
    after = AutoModelForImageTextToText.from_pretrained(tmp_path / "checkpoint").state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert any("patch_embedding" in name for name in moved)
    assert not any(UNREACHED in name for name in moved)


def test_sft_makes_a_policy_that_tells_pictures_apart(tmp_path, pictured):
    """Two pictures, one text, two answers: only an eye can learn it."""
    trees = msgspec.json.decode(msgspec.json.encode(pictured.tree_list), type=list[Tree])
    answers = {}
    for tree in trees:
        for step in tree.steps:
            step.prompt = "start"
            step.pictures = trees[0].steps[step.id % 2].pictures
            step.response = ("<action> up </action>", "<action> down </action>")[step.id % 2]
            answers[step.pictures] = step.response
    lines = write(pictured.folder / "two.jsonl", trees)
    statistics = sft(pictured, tmp_path, lines, updates=40, samples_per_update=12, samples_per_microbatch=12)
    assert statistics["final_token_accuracy"] == 1
    assert len(answers) == 2


def test_a_picture_that_is_gone_or_other_is_refused(pictured, tmp_path):
    (name,) = pictured.tree_list[1].steps[0].pictures
    file = picture_file(pictured.folder / "pictures", name)
    kept = file.read_bytes()
    try:
        file.write_bytes(picture(99).png)
        for call in (train, sft):
            refused(lambda call=call: call(pictured, tmp_path), 3, names=str(file))
        file.unlink()
        for call in (train, sft):
            refused(lambda call=call: call(pictured, tmp_path), 3, names=str(file))
    finally:
        file.write_bytes(kept)


def test_another_picture_is_another_training(pictured, tmp_path):
    stopped(sft, pictured, tmp_path, 4, samples_per_update=6)
    trees = msgspec.json.decode(msgspec.json.encode(pictured.tree_list), type=list[Tree])
    trees[0].steps[0].pictures = trees[1].steps[0].pictures
    other = write(pictured.folder / "other.jsonl", trees)
    refused(lambda: sft(pictured, tmp_path, other, samples_per_update=6), 3, names="pictures", remedy="--overwrite")


@pytest.mark.parametrize("call", [train, sft])
def test_a_model_that_reads_texts_refuses_pictures(pictured, rollout, tmp_path, call):
    given = {"model": str(rollout.model)}
    refused(lambda: call(pictured, tmp_path, **given), 3, names=("trees.jsonl", "pictures", str(rollout.model)))


def test_packing_is_refused(pictured, tmp_path):
    refused(lambda: train(pictured, tmp_path, packing="on"), names="train.packing", remedy="auto")


@pytest.mark.parametrize("name", ["ppo", "dpo", "offline-ppo", "process-reward"])
def test_other_objectives_refuse_a_model_that_sees(pictured, tmp_path, name):
    settings = TrainSettings(objective=name)
    job = Job(str(pictured.model), tmp_path / "checkpoint", settings, 0, tmp_path / "metrics.jsonl")
    refused(
        lambda: make_objective(name).train(job, pictured.trees, pictured.credit),
        names=(name, str(pictured.model)),
        remedy="train.objective=policy-gradient",
    )
