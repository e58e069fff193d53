"""The optimiser with moments in 8 bits: refused where it cannot be had, and kept to the bit where it can."""

from importlib import metadata

import pytest
import torch
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.snapshots import check_optimizer, load_optimizer, make_optimizer, save_optimizer
from refusal import refused
from safetensors.torch import load_file, save_file

IN_8_BITS = TrainSettings(optimizer="adamw_8bit", learning_rate=1e-2)


def test_refused_without_bitsandbytes_and_with_shares(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    refused(lambda: check_optimizer(IN_8_BITS), 4, names="train.optimizer", remedy="pip install 'agentcli[quantised]'")
    shared = TrainSettings(optimizer="adamw_8bit", sharding="fsdp")
    refused(lambda: check_optimizer(shared), names="train.optimizer", remedy="train.optimizer=adamw")
    check_optimizer(TrainSettings())


@pytest.fixture
def layers():
    """Makes layers whose weights are large enough to have quantised moments, and their optimiser."""
    pytest.importorskip("bitsandbytes")

    def made():
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.Linear(64, 128))
        return layers, make_optimizer(IN_8_BITS, [{"params": list(layers.parameters())}])

    return made


def updated(layers, optimizer, updates):
    for update in updates:
        torch.manual_seed(update)
        layers(torch.randn(4, 128)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_restored_optimiser_goes_on_with_the_same_bits(layers, tmp_path):
    whole, optimizer = layers()
    updated(whole, optimizer, range(3))
    save_optimizer(optimizer, whole, tmp_path / "state.safetensors")
    assert load_file(tmp_path / "state.safetensors")["state1/0.weight"].dtype == torch.uint8
    parts, restored = layers()
    parts.load_state_dict(whole.state_dict())
    assert load_optimizer(restored, parts, tmp_path / "state.safetensors") == 3
    updated(whole, optimizer, range(3, 6))
    updated(parts, restored, range(3, 6))
    for one, other in zip(parts.parameters(), whole.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_state_of_another_optimiser_or_a_torn_one_is_refused(layers, tmp_path):
    one, optimizer = layers()
    updated(one, optimizer, range(1))
    save_optimizer(optimizer, one, tmp_path / "state.safetensors")
    tensors = load_file(tmp_path / "state.safetensors")
    del tensors["absmax1/1.weight"]
    save_file(tensors, tmp_path / "torn.safetensors")
    refused(lambda: load_optimizer(layers()[1], one, tmp_path / "torn.safetensors"), 3, names="absmax1/1.weight")
    plain = torch.optim.AdamW(one.parameters())
    refused(lambda: load_optimizer(plain, one, tmp_path / "state.safetensors"), 3, names="state.safetensors")


@pytest.mark.parametrize("epsilon", [1e-8, 1e-5])
@pytest.mark.parametrize("gradient", [1e-3, 1e-7])
def test_epsilon_bounds_the_step_of_a_gradient_that_vanishes(epsilon: float, gradient: float) -> None:
    """AdamW's first step is rate * g / (|g| + epsilon): of full size, unless the gradient is below epsilon."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = make_optimizer(TrainSettings(learning_rate=0.5, adam_epsilon=epsilon), [{"params": [weight]}])
    weight.grad = torch.full_like(weight, gradient)
    optimizer.step()
    assert -weight.item() == pytest.approx(0.5 * gradient / (gradient + epsilon))
