"""The critic as a network and as a directory: what it says when new, what plain transformers reads, what LoRA trains."""

import pytest
import torch
from agentcli.policies.chat import prompt_ids
from agentcli.policies.load import is_critic, load_tokenizer
from agentcli.records.training_settings import LoraSettings
from agentcli.training.critic import (
    HEAD,
    load_critic,
    load_trainable_critic,
    save_critic,
    state_values,
)
from agentcli.training.loop.forward import pad_rows
from refusal import refused
from safetensors.torch import load_file
from tiny_rollout import WORDS
from torch import nn
from transformers import AutoModel, AutoModelForTokenClassification

SHAPES = [("linear", 0), ("mlp", 0), ("linear", 4), ("mlp", 4)]
PROMPTS = [" ".join(WORDS[:length]) for length in (1, 4, 9)]


def values_of(critic, tokenizer):
    ids = [prompt_ids(tokenizer, prompt) for prompt in PROMPTS]
    ids_BT, _ = pad_rows([(row, []) for row in ids], tokenizer.pad_token_id)
    with torch.no_grad():
        return state_values(critic.eval(), ids_BT, torch.tensor([len(row) - 1 for row in ids]))


def learned(rollout, head, rank):
    """A critic whose weights have moved, and the names of those that had a gradient."""
    torch.manual_seed(0)
    critic = load_trainable_critic(str(rollout.model), head, LoraSettings(rank=rank, alpha=8), "train.options.critic")
    ids = torch.tensor([prompt_ids(rollout.tokenizer, PROMPTS[1])])
    for _ in range(2):  # the first gradient of a new head reaches its last layer alone
        critic.zero_grad()
        state_values(critic, ids, torch.tensor([ids.shape[1] - 1])).sum().backward()
        moved = {
            name for name, one in critic.named_parameters() if one.grad is not None and bool(one.grad.abs().sum() > 0)
        }
        with torch.no_grad():
            for parameter in critic.parameters():
                if parameter.grad is not None:
                    parameter += 0.5 * parameter.grad
    return critic, moved


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_a_new_critic_says_zero(rollout, head):
    critic = load_critic(str(rollout.model), head)
    assert values_of(critic, rollout.tokenizer).tolist() == [0.0] * 3
    assert not is_critic(str(rollout.model))


@pytest.mark.parametrize(("head", "rank"), SHAPES)
def test_a_saved_critic_says_the_same(rollout, tmp_path, head, rank):
    critic, _ = learned(rollout, head, rank)
    values = values_of(critic, rollout.tokenizer)
    assert values.abs().min() > 1e-3
    save_critic(critic, rollout.tokenizer, tmp_path / "critic")
    assert is_critic(str(tmp_path / "critic"))
    again = load_critic(str(tmp_path / "critic"), "linear")
    tokenizer = load_tokenizer(str(tmp_path / "critic"))
    torch.testing.assert_close(values_of(again, tokenizer), values)
    further = load_trainable_critic(str(tmp_path / "critic"), "linear", LoraSettings(rank=rank, alpha=8), "critic")
    torch.testing.assert_close(values_of(further, tokenizer), values)
    wanted = {name for name, one in critic.named_parameters() if one.requires_grad}
    assert {name for name, one in further.named_parameters() if one.requires_grad} == wanted


def test_a_linear_critic_loads_with_plain_transformers(rollout, tmp_path):
    critic, _ = learned(rollout, "linear", 0)
    save_critic(critic, rollout.tokenizer, tmp_path / "critic")
    plain = AutoModelForTokenClassification.from_pretrained(tmp_path / "critic").train()
    ids = prompt_ids(rollout.tokenizer, PROMPTS[2])
    score = plain(torch.tensor([ids])).logits[0, -1, 0]
    assert score.item() == pytest.approx(values_of(critic, rollout.tokenizer)[2].item(), rel=1e-5)


def test_an_mlp_critic_is_a_plain_backbone_with_its_head_beside_it(rollout, tmp_path):
    critic, _ = learned(rollout, "mlp", 0)
    save_critic(critic, rollout.tokenizer, tmp_path / "critic")
    backbone = AutoModel.from_pretrained(tmp_path / "critic")
    width = backbone.config.hidden_size
    head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
    head.load_state_dict(load_file(tmp_path / "critic" / HEAD))
    ids = prompt_ids(rollout.tokenizer, PROMPTS[2])
    score = head(backbone(torch.tensor([ids])).last_hidden_state[0, -1])
    assert score.item() == pytest.approx(values_of(critic, rollout.tokenizer)[2].item(), rel=1e-5)


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_with_lora_gradients_reach_adapters_and_head_only(rollout, head):
    critic, moved = learned(rollout, head, 4)
    assert {name.split(".")[-2] for name in moved if "lora" in name} == {"default"}
    assert any("score" in name for name in moved)
    assert all("lora_" in name or "score.modules_to_save" in name for name in moved)
    assert not any("lora" in name for name, _ in critic.named_parameters() if "score" in name)


def test_what_shares_a_batch_does_not_change_a_value(rollout):
    critic, _ = learned(rollout, "mlp", 0)
    together = values_of(critic, rollout.tokenizer)
    for prompt, value in zip(PROMPTS, together, strict=True):
        ids = prompt_ids(rollout.tokenizer, prompt)
        alone = state_values(critic, torch.tensor([ids]), torch.tensor([len(ids) - 1]))
        assert alone.item() == pytest.approx(value.item(), rel=1e-5)


def test_damaged_critics_are_refused(rollout, tmp_path):
    critic, _ = learned(rollout, "mlp", 0)
    save_critic(critic, rollout.tokenizer, tmp_path / "critic")
    (tmp_path / "critic" / HEAD).unlink()
    refused(lambda: load_critic(str(tmp_path / "critic")), 3, HEAD)
    save_critic(critic, rollout.tokenizer, tmp_path / "critic")
    (tmp_path / "critic" / "critic.json").write_text('{"head": "cubic"}')
    refused(lambda: load_critic(str(tmp_path / "critic")), 3, ("critic.json", "cubic"))
