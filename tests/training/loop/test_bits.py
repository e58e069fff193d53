"""4 bits are refused where nothing could be trained on them."""

import torch
from agentcli.records.training_settings import LoraSettings
from agentcli.training.critic import load_trainable_critic
from agentcli.training.loop.checkpoints import check_bits, load_trainable
from refusal import refused

FOUR = LoraSettings(rank=4, alpha=8, bits=4)


def test_four_bits_are_refused_without_an_adapter_and_without_a_gpu(rollout):
    assert not torch.cuda.is_available()
    refused(lambda: check_bits(LoraSettings(bits=4)), 2, "lora.bits", "lora.rank")
    refused(lambda: load_trainable(str(rollout.model), FOUR), 2, ("lora.bits", "GPU"), "lora.bits=32")
    refused(lambda: load_trainable_critic(str(rollout.model), "mlp", FOUR, "critic"), 2, "lora.bits", "lora.bits=32")
    check_bits(LoraSettings())
