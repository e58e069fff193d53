"""A policy that takes other weights answers as one started from them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from agentcli.policies.hf import TransformersPolicy
from agentcli.policies.load import load_model, load_tokenizer
from agentcli.policies.protocol import Reloadable, Reply
from agentcli.records.settings import PolicySettings
from peft import LoraConfig, get_peft_model
from policy_requests import all_replies, make_requests
from refusal import refused


def started(directory: Path) -> TransformersPolicy:
    return TransformersPolicy(load_model(str(directory)), load_tokenizer(str(directory)), PolicySettings())


def replies(policy: TransformersPolicy) -> list[Reply]:
    return all_replies(policy, make_requests(12, seed=5))


@pytest.fixture
def directories(model: Any, tokenizer: Any, tmp_path: Path) -> dict[str, Path]:
    """A model, the same one trained on, and two adapters of it."""
    torch.manual_seed(0)
    places = {name: tmp_path / name for name in ("first", "second", "adapter", "other-adapter")}
    for name in ("first", "second"):
        model.save_pretrained(places[name])
        tokenizer.save_pretrained(places[name])
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.05 * torch.randn_like(parameter)
    for name in ("adapter", "other-adapter"):
        base = load_model(str(places["first"]))
        adapted = get_peft_model(base, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
        with torch.no_grad():
            for part, parameter in adapted.named_parameters():
                if "lora_B" in part:
                    parameter.normal_(std=0.3)
        adapted.save_pretrained(places[name])
    return places


def test_replies_are_those_of_a_policy_started_from_the_checkpoint(directories: dict[str, Path]) -> None:
    policy = started(directories["first"])
    assert isinstance(policy, Reloadable)
    before = replies(policy)
    for name in ("second", "adapter", "other-adapter", "first"):
        asyncio.run(policy.load(str(directories[name])))
        assert replies(policy) == replies(started(directories[name]))
        assert (replies(policy) == before) == (name == "first")


def test_weights_of_the_same_shape_are_replaced_in_place(directories: dict[str, Path]) -> None:
    policy = started(directories["first"])
    network = policy._model
    asyncio.run(policy.load(str(directories["second"])))
    assert policy._model is network
    asyncio.run(policy.load(str(directories["adapter"])))
    assert policy._model is not network


def test_a_damaged_checkpoint_leaves_the_policy_as_it_was(directories: dict[str, Path]) -> None:
    policy = started(directories["first"])
    before = replies(policy)
    (directories["second"] / "model.safetensors").write_bytes(b"no weights")
    refused(lambda: asyncio.run(policy.load(str(directories["second"]))), 3, names="model.safetensors")
    assert replies(policy) == before
