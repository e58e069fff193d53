"""A base in 4 bits under a trained adapter. bitsandbytes computes it on a CPU, too, where widths are multiples of 64; agentcli
asks for a GPU before it gets there. Collected where the extra `quantised` is installed (tests/training/conftest.py): without a
GPU bitsandbytes warns in every process that loads an adapter, so the suite does not install it.
"""

from functools import partial

import pytest
import torch
from agentcli.policies.load import load_model
from agentcli.policies.tiny import make_model, make_tokenizer
from agentcli.records.training_settings import LoraSettings, TinySettings
from agentcli.training.critic import load_trainable_critic, state_values
from agentcli.training.loop import checkpoints
from agentcli.training.loop.checkpoints import load_quantised, load_trainable, save_checkpoint
from refusal import refused
from tiny_rollout import WORDS

IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])
FOUR = LoraSettings(rank=4, alpha=8, bits=4)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A policy whose widths bitsandbytes can pack on a CPU."""
    folder = tmp_path_factory.mktemp("wide") / "model"
    tokenizer = make_tokenizer([" ".join(WORDS)], [])
    shape = TinySettings(hidden=128, layers=2, heads=2, kv_heads=2, intermediate=128)
    make_model(shape, tokenizer, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def on_cpu(monkeypatch):
    """What is quantised on a GPU is quantised on the CPU by the same code."""
    monkeypatch.setattr(checkpoints, "check_bits", lambda lora: None)
    monkeypatch.setattr(checkpoints, "own_gpu", lambda: "cpu")


@pytest.mark.usefixtures("on_cpu")
def test_the_adapter_alone_is_trained_and_loads_on_the_whole_base(wide, rollout, tmp_path):
    actor = load_trainable(str(wide), FOUR).train()
    packed = actor.base_model.model.model.layers[0].mlp.up_proj.base_layer.weight
    assert packed.dtype == torch.uint8
    assert packed.numel() == 128 * 128 // 2
    actor(input_ids=IDS).logits.square().sum().backward()
    moved = {name for name, one in actor.named_parameters() if one.grad is not None}
    assert moved
    assert all("lora_" in name for name in moved)
    with torch.no_grad():
        for name, one in actor.named_parameters():
            if "lora_B" in name:
                one += 0.1 * torch.ones_like(one)
        near = actor.eval()(input_ids=IDS).logits
    save_checkpoint(actor, rollout.tokenizer, tmp_path / "adapter")
    whole = load_model(str(tmp_path / "adapter"), device="cpu")
    again = load_trainable(str(tmp_path / "adapter"), FOUR)
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(input_ids=IDS).logits, near)
        exact, base = whole(input_ids=IDS).logits, load_model(str(wide), device="cpu")(input_ids=IDS).logits
    assert 0 < (near - exact).abs().mean() < (exact - base).abs().mean()


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_a_critic_on_four_bits_has_a_whole_head(wide, head):
    critic = load_trainable_critic(str(wide), head, FOUR, "critic")
    last = torch.tensor([5])
    assert state_values(critic, IDS, last).item() == 0
    state_values(critic, IDS, last).sum().backward()
    moved = {name for name, one in critic.named_parameters() if one.grad is not None and bool(one.grad.abs().sum())}
    assert moved
    assert all("score.modules_to_save" in name for name in moved)
    assert all(one.dtype == torch.float32 for name, one in critic.named_parameters() if "score" in name)


@pytest.mark.usefixtures("on_cpu")
def test_a_damaged_model_is_refused_in_one_line(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    from transformers import AutoModelForCausalLM

    load = partial(load_quantised, "cpu", AutoModelForCausalLM, str(tmp_path), torch.float32)
    refused(load, 3, str(tmp_path))
