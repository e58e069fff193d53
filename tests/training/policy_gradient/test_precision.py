"""What computes in which precision, and that an adapter's base serves as its reference."""

import shutil

import pytest
import torch
from agentcli.policies.load import load_model
from agentcli.records.files import read_records
from agentcli.records.training_settings import LoraSettings, TrainSettings
from agentcli.training.loop.checkpoints import is_base, load_trainable
from agentcli.training.loop.forward import pad_rows, predicted_logits
from agentcli.training.loop.job import Job
from agentcli.training.metrics import TrainMetrics
from agentcli.training.policy_gradient import batches
from agentcli.training.policy_gradient.training import PolicyTraining
from refusal import refused
from safetensors.torch import load_file

LORA = LoraSettings(rank=4, alpha=8)
HALF = LoraSettings(rank=4, alpha=8, bits=16)
FAST = {"aggregate": "step", "learning_rate": 1e-2, "rows_per_update": 6}


@pytest.fixture
def train(rollout, tmp_path):
    """train(name, model=..., reference=..., **settings) -> (statistics, weights, metrics without seconds)"""

    def call(name, model=rollout.model, reference=None, **given):
        metrics = tmp_path / f"{name}.jsonl"
        settings = TrainSettings(**{**FAST, **given})
        job = Job(str(model), tmp_path / name, settings, 0, metrics, reference=reference and str(reference))
        statistics = PolicyTraining(job).train(rollout.trees, rollout.credit)
        lines = list(read_records(metrics, TrainMetrics))
        for line in lines:
            line.seconds = 0.0
        return statistics, load_file(next((tmp_path / name).glob("*.safetensors"))), lines

    return call


def assert_equal(one, other):
    assert one[2] == other[2]
    assert one[1].keys() == other[1].keys()
    assert all(torch.equal(one[1][name], other[1][name]) for name in one[1])


def test_the_base_of_an_adapter_is_its_reference(rollout, train, tmp_path, monkeypatch):
    """A copy elsewhere is loaded, and gives the same bits; the base itself is not loaded once more, nor as its adapter goes on."""
    copied = shutil.copytree(rollout.model, tmp_path / "copied")
    shutil.copytree(rollout.model, tmp_path / "base")
    (tmp_path / "link").symlink_to(tmp_path / "base")
    loaded = []
    load = batches.load_frozen
    monkeypatch.setattr(batches, "load_frozen", lambda model, *how: loaded.append(model) or load(model, *how))
    for name, start in (("first", tmp_path / "base"), ("second", tmp_path / "first-apart")):
        apart = train(f"{name}-apart", start, copied, lora=LORA, beta=0.3)
        assert loaded == [str(copied)]
        shared = train(name, start, tmp_path / "link", lora=LORA, beta=0.3)
        assert loaded == [str(copied)]
        loaded.clear()
        assert_equal(shared, apart)
        assert shared[2][-1].kl > 1e-5


def test_an_adapter_that_goes_on_is_its_own_reference(rollout, train, tmp_path):
    """As in a loop, which names the model that it starts from."""
    train("adapter", lora=LORA, beta=0.3)
    unnamed = train("unnamed", tmp_path / "adapter", lora=LORA, beta=0.3)
    named = train("named", tmp_path / "adapter", tmp_path / "adapter", lora=LORA, beta=0.3)
    assert_equal(unnamed, named)
    assert unnamed[2][0].kl == 0
    assert unnamed[2][-1].kl > 1e-6


def test_an_adapter_on_a_half_precision_base_is_its_own_reference(train, tmp_path):
    train("adapter", lora=HALF, beta=0.3)
    named = train("named", tmp_path / "adapter", tmp_path / "adapter", lora=HALF, beta=0.3)
    assert named[2][0].kl == 0


def test_only_the_base_is_the_base(rollout, train, tmp_path):
    train("adapter", lora=LORA)
    model = load_trainable(str(tmp_path / "adapter"), LORA)
    base = str(rollout.model)
    assert [is_base(name, model) for name in (base, f"{base}/../{rollout.model.name}")] == [True] * 2
    assert not is_base(str(tmp_path / "adapter"), model)
    assert not is_base("some/hub-id", model)
    assert not is_base(base, load_model(base))


def test_a_base_in_bfloat16_has_an_adapter_in_float32(train, tmp_path):
    _, weights, lines = train("adapter", lora=HALF, beta=0.1)
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    assert any(weight.abs().max() > 0 for name, weight in weights.items() if "lora_B" in name)
    model = load_trainable(str(tmp_path / "adapter"), HALF)
    for name, parameter in model.named_parameters():
        is_adapters = "lora_" in name
        assert (parameter.dtype, parameter.requires_grad) == (
            torch.float32 if is_adapters else torch.bfloat16,
            is_adapters,
        )
        if is_adapters:
            assert torch.equal(parameter, weights[name.replace(".default", "")])
    _, _, whole = train("whole", lora=LORA, beta=0.1)
    assert lines[0].gap_mean > 10 * whole[0].gap_mean
    assert lines[0].grad_norm == pytest.approx(whole[0].grad_norm, rel=0.05)
    assert lines[0].kl == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("bits", [4, 16])
def test_a_coarse_base_needs_an_adapter(train, bits):
    refused(lambda: train("none", lora=LoraSettings(bits=bits)), names=("lora.bits", str(bits)), remedy="lora.rank")


def test_a_head_in_float32(rollout, train):
    """The same bits where everything is in float32; under autocast the logits of the very hidden states, unrounded."""
    assert_equal(train("plain"), train("headed", float32_head=True))
    model = load_model(str(rollout.model))
    ids_BT, response_BT = pad_rows([([5, 6, 7], [8, 9])], 0)
    batch = {"ids_BT": ids_BT, "response_BT": response_BT}
    hidden = []
    head = model.get_output_embeddings()
    head.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0]))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        rounded = predicted_logits(model, batch)
        exact = predicted_logits(model, batch, torch.float32)
        assert torch.equal(predicted_logits(model, batch), rounded)
    assert (rounded.dtype, exact.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(exact, hidden[1][0].float() @ head.weight.T)
    assert 1e-4 < (exact - rounded).abs().max() < 0.1
    _, weights, lines = train("half", bf16=True, float32_head=True)
    _, _, coarse = train("coarse", bf16=True)
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    assert lines[0].gap_mean < coarse[0].gap_mean


def test_importance_weights_recompute(train):
    """Ratios then begin at 1, and the metrics still say how far the sampler is."""
    statistics, _, lines = train("weighed", bf16=True, importance_cap=2)
    assert lines[0].ratio_max == pytest.approx(1, abs=1e-3)
    assert statistics["logprob_gap"]["tokens"] == sum(line.tokens for line in lines)
    assert lines[0].gap_mean > 1e-4
