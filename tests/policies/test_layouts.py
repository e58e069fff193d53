"""policy.batching: what `fast` changes, and what it does not."""

from typing import Any

import pytest
import torch
from agentcli.policies.hf import TransformersPolicy
from agentcli.policies.layouts import ExactLayout, FastLayout, layout_of
from agentcli.policies.protocol import Request
from agentcli.records.settings import PolicySettings
from peft import LoraConfig, get_peft_model
from policy_requests import ENTITIES, all_replies, make_request, make_requests
from transformers import Lfm2Config, Lfm2ForCausalLM

EVERYBODY = PolicySettings(batching="fast", batch_rows=64, linger_ms=50.0)


def siblings() -> list[Request]:
    """Prompts of unlike lengths, several of them asked more than once, with a greedy one among them."""
    long = " ".join(ENTITIES * 3)
    prompts = ["open fridge 1", "open fridge 1", long, "open fridge 1", long]
    asked = [make_request(prompt, seed) for seed, prompt in enumerate(prompts)]
    return [*asked, make_request(long, 9, temperature=0.0), *make_requests(12, seed=3)]


@pytest.fixture(params=["plain", "adapter"])
def network(request: pytest.FixtureRequest, model: Any) -> Any:
    if request.param == "plain":
        return model
    torch.manual_seed(0)
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    return adapted.eval()


def test_fast_draws_the_same_tokens_with_nearly_the_same_log_probabilities(network: Any, tokenizer: Any) -> None:
    requests = siblings()
    exact = all_replies(TransformersPolicy(network, tokenizer, PolicySettings(batching="exact")), requests)
    fast = all_replies(TransformersPolicy(network, tokenizer, EVERYBODY), requests)
    assert [reply.token_ids for reply in fast] == [reply.token_ids for reply in exact]
    for one, other in zip(fast, exact, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
        assert (one.text, one.prompt_tokens, one.stop) == (other.text, other.prompt_tokens, other.stop)


def test_equal_prompts_of_a_model_with_states_are_read_each_for_itself(tokenizer: Any) -> None:
    shape = {"num_attention_heads": 2, "num_key_value_heads": 1, "layer_types": ["conv", "full_attention"]}
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    torch.manual_seed(0)
    others = {"eos_token_id": tokenizer.eos_token_id, "initializer_range": 0.2}
    recurrent = Lfm2ForCausalLM(Lfm2Config(**shape, **sizes, **others)).eval()
    test_fast_draws_the_same_tokens_with_nearly_the_same_log_probabilities(recurrent, tokenizer)


def test_fast_makes_one_batch_of_all_lengths_and_reads_equal_prompts_once(model: Any, tokenizer: Any) -> None:
    read = []
    model.model.embed_tokens.register_forward_pre_hook(lambda module, words: read.append(words[0].shape))
    policy = TransformersPolicy(model, tokenizer, EVERYBODY)
    requests = siblings()
    all_replies(policy, requests)
    prompts = [policy.tokens.prompt_ids(request.prompt) for request in requests]
    different = {tuple(prompt) for prompt in prompts}
    assert len(different) < len(prompts)
    width = max(map(len, prompts))
    assert read[:2] == [(len(different), width - 1), (len(prompts), 1)]


def test_prompts_that_all_differ_are_read_with_the_first_token(model: Any, tokenizer: Any) -> None:
    read = []
    model.model.embed_tokens.register_forward_pre_hook(lambda module, words: read.append(words[0].shape))
    policy = TransformersPolicy(model, tokenizer, EVERYBODY)
    all_replies(policy, [make_request("open fridge 1", 1), make_request("open fridge 1 apple 3", 2)])
    assert [shape[0] for shape in read] == [2] * len(read)
    assert read[0][1] > 1


def test_the_device_decides_unless_the_setting_does() -> None:
    assert isinstance(layout_of(None, "cpu"), ExactLayout)
    assert isinstance(layout_of(None, "cuda"), FastLayout)
    assert isinstance(layout_of("fast", "cpu"), FastLayout)
    assert isinstance(layout_of("exact", "cuda"), ExactLayout)
