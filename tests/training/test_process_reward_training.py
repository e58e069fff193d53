"""The objective process-reward: on steps of known worth the model finds it, and a stop changes nothing."""

import msgspec
import pytest
import torch
from agentcli.records.settings import PolicySettings
from agentcli.records.training_settings import LoraSettings
from agentcli.records.types import Step
from agentcli.training.critic import read_scores
from refusal import refused
from safetensors.torch import load_file
from stopping import Stopped, left, stop_after
from tiny_rollout import write
from valued import BETTER, STATES, WORSE, Taken, credit_of, trained, trees_of

ALONE = {"observation": "", "state": "", "next_state": "", "next_observation": ""}
WORTH = {(STATES[0], BETTER): 1.0, (STATES[0], WORSE): 0.25, (STATES[1], BETTER): 0.0, (STATES[1], WORSE): 0.5}
TAKEN = [Taken(state, action, worth) for (state, action), worth in WORTH.items()]
SETTINGS = {
    "objective": "process-reward",
    "learning_rate": 1e-2,
    "rows_per_update": 4,
    "rows_per_microbatch": 4,
    "options": {"target": "return"},
}


@pytest.fixture
def problem(rollout, tmp_path):
    """problem(name, ...) -> statistics of a training on TAKEN."""
    trees = write(tmp_path / "trees.jsonl", trees_of(TAKEN, rollout.tokenizer))
    credit = write(tmp_path / "credit.jsonl", credit_of(TAKEN))

    def call(name, progress=None, **given):
        return trained(tmp_path / name, trees, credit, rollout.model, progress=progress, **{**SETTINGS, **given})

    return call


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_it_finds_the_worth_of_every_step(problem, tmp_path, head):
    statistics = problem("known", epochs=120, options={"target": "return", "head": head})
    assert statistics["target_mean"] == pytest.approx(0.4375)
    reading = read_scores(str(tmp_path / "known/checkpoint"), PolicySettings())
    for (state, action), worth in WORTH.items():
        step = Step(id=0, parent=None, prompt=state, response=action, **ALONE)
        ids = reading.ids(None, step)  # a prompt that stands alone needs no tree
        with torch.no_grad():
            score = reading.values(reading.network, torch.tensor([ids]), torch.tensor([len(ids) - 1]))
        assert float(score) == pytest.approx(worth, abs=0.05)


LORA = LoraSettings(rank=2, alpha=4, dropout=0.1)


@pytest.mark.parametrize("lora", [LoraSettings(), pytest.param(LORA, marks=pytest.mark.slow)])
def test_a_stopped_training_ends_with_the_same_bits(problem, tmp_path, lora):
    given = {"rows_per_update": 3, "rows_per_microbatch": 2, "epochs": 3, "save_every_updates": 2, "lora": lora}
    statistics = problem("whole", **given)
    with pytest.raises(Stopped):
        problem("parts", stop_after(5), **given)
    assert problem("parts", **given) == statistics
    assert left(tmp_path / "parts") == left(tmp_path / "whole")


def test_gradients_reach_adapters_and_head_only(problem, tmp_path):
    problem("adapter", epochs=3, lora=LORA)
    names = set(load_file(tmp_path / "adapter/checkpoint/adapter_model.safetensors"))
    assert any(".lora_" in name for name in names)
    assert all(".lora_" in name or ".score." in name for name in names)


def test_credit_without_the_target_is_refused(problem):
    refused(
        lambda: problem("bare", options={"target": "reward"}), 3, ("credit.jsonl:1", "reward"), "train.options.target"
    )


def test_credit_without_weight_trains_nothing_and_says_so(problem, rollout, tmp_path):
    trees = write(tmp_path / "same.jsonl", trees_of(TAKEN, rollout.tokenizer))
    weightless = []
    for given in credit_of(TAKEN):
        entries = [msgspec.structs.replace(entry, weight=0.0) for entry in given.steps]
        weightless.append(msgspec.structs.replace(given, steps=entries))
    credit = write(tmp_path / "weightless.jsonl", weightless)
    statistics = trained(tmp_path / "none", trees, credit, rollout.model, **SETTINGS)
    assert (statistics["updates"], statistics["means"]) == (0, {})
