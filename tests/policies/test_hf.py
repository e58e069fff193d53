"""The transformers policy: what it returns, and that a reply belongs to its request alone."""

import asyncio
import copy
import random
from typing import Any

import pytest
import torch
from agentcli.policies.chat import prompt_ids
from agentcli.policies.chat_tokens import Prompted
from agentcli.policies.hf import TransformersPolicy
from agentcli.policies.layouts import PROMPT_BUCKET, ExactLayout
from agentcli.policies.sampling import gumbel
from agentcli.records.settings import PolicySettings
from agentcli.records.types import StopReason
from peft import LoraConfig, get_peft_model
from policy_requests import ENTITIES, all_replies, make_request, make_requests
from refusal import refusal, refused

key = ExactLayout().key


@pytest.fixture
def policy(model: Any, tokenizer: Any) -> TransformersPolicy:
    return TransformersPolicy(model, tokenizer, PolicySettings())


def test_a_reply_is_the_same_bits_in_any_company(policy: TransformersPolicy) -> None:
    requests = make_requests(64, seed=3)
    items = [
        Prompted(policy.tokens.prompt_ids(request.prompt), request.seed, temperature, 12)
        for request, temperature in zip(requests, [0.4, 1.0] * 32, strict=True)
    ]
    alone = {item.seed: policy._generate([item])[0] for item in items}
    rng = random.Random(4)
    for count in (*range(1, 12), 17, 24, 33, 48, 63, 64):
        classes: dict[Any, list[Prompted]] = {}
        for item in rng.sample(items, count):
            classes.setdefault(key(item), []).append(item)
        for company in classes.values():
            assert policy._generate(company) == [alone[item.seed] for item in company]


def test_a_prompt_that_fills_its_bucket_is_the_same_bits_beside_a_shorter_one(policy: TransformersPolicy) -> None:
    """Unpadded, it would be attended without a mask as long as it is alone."""
    rng = random.Random(8)
    entities = [token for name in ENTITIES for token in policy.tokens.prompt_ids(name)[:1]]
    full = [Prompted(rng.choices(entities, k=PROMPT_BUCKET), seed, 1.0, 24) for seed in range(12)]
    shorter = [item for item in make_items(policy, 40) if key(item) == key(full[0])]
    assert shorter
    for item in full:
        assert policy._generate([item]) == policy._generate([item, shorter[0]])[:1]


def test_a_prompt_must_leave_room_in_the_context_of_the_model(model: Any, tokenizer: Any) -> None:
    model.config.max_position_embeddings = 24
    policy = TransformersPolicy(model, tokenizer, PolicySettings())
    prompt = "open fridge 1"
    room = 24 - len(policy.tokens.prompt_ids(prompt))
    all_replies(policy, [make_request(prompt, max_tokens=room)])
    crowded = make_request(prompt, max_tokens=room + 1)
    refused(lambda: all_replies(policy, [crowded]), 1, remedy="policy.max_tokens")


def make_items(policy: TransformersPolicy, length: int) -> list[Prompted]:
    """One item of every prompt length up to `length`."""
    ids = policy.tokens.prompt_ids(ENTITIES[0])[:1]
    return [Prompted(ids * count, count, 1.0, 24) for count in range(1, length + 1)]


def test_concurrency_and_batch_rows_change_nothing(model: Any, tokenizer: Any) -> None:
    requests = [
        *make_requests(20, seed=5),
        *make_requests(12, seed=6, temperature=0.0),
        *make_requests(8, seed=7, max_tokens=3),
    ]
    settings = [
        (1, PolicySettings(linger_ms=0.0)),
        (32, PolicySettings()),
        (40, PolicySettings(batch_rows=5, linger_ms=0.0)),
    ]
    answers = [all_replies(TransformersPolicy(model, tokenizer, setting), requests, rows) for rows, setting in settings]
    assert answers[0] == answers[1] == answers[2]


def test_seeds_make_the_difference(policy: TransformersPolicy) -> None:
    replies = all_replies(policy, [make_request("open fridge 1", seed) for seed in range(16)])
    assert len({reply.token_ids for reply in replies}) == 16


@pytest.mark.parametrize(("temperature", "stored"), [(0.4, 0.4), (1.0, 1.0), (0.0, 1.0)])
def test_logprobs_are_those_of_teacher_forcing_at_the_temperature_of_sampling(
    policy: TransformersPolicy, model: Any, tokenizer: Any, temperature: float, stored: float
) -> None:
    requests = make_requests(12, seed=8, temperature=temperature)
    for request, reply in zip(requests, all_replies(policy, requests), strict=True):
        prompt = prompt_ids(tokenizer, request.prompt)
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *reply.token_ids]])).logits[0, len(prompt) - 1 : -1]
        assert (reply.temperature, reply.logprob_temperature) == (temperature, stored)
        expected = torch.log_softmax(logits / stored, -1).gather(-1, torch.tensor(reply.token_ids)[:, None])[:, 0]
        assert torch.tensor(reply.logprobs) == pytest.approx(expected, abs=1e-5)
        assert all(value == round(value, 6) for value in reply.logprobs)
        assert reply.prompt_tokens == len(prompt)


def test_temperature_zero_is_greedy(policy: TransformersPolicy, model: Any, tokenizer: Any) -> None:
    request = make_request("open fridge 1", 1, temperature=0.0)
    (reply,) = all_replies(policy, [request])
    tokens = prompt_ids(tokenizer, request.prompt)
    for expected in reply.token_ids:
        with torch.inference_mode():
            assert int(model(torch.tensor([tokens])).logits[0, -1].argmax()) == expected
        tokens = [*tokens, expected]


def test_the_end_of_turn_is_a_token_and_not_text(policy: TransformersPolicy, tokenizer: Any) -> None:
    replies = all_replies(policy, make_requests(48, seed=9, max_tokens=40))
    stops = [reply.stop for reply in replies]
    assert {StopReason.STOP, StopReason.LENGTH} == set(stops)
    for reply in replies:
        ended = reply.token_ids[-1] == tokenizer.eos_token_id
        assert ended == (reply.stop is StopReason.STOP)
        assert tokenizer.eos_token_id not in reply.token_ids[:-1]
        assert len(reply.token_ids) == len(reply.logprobs) <= 40
        assert ended or len(reply.token_ids) == 40
        assert tokenizer.eos_token not in reply.text


def test_settings_stored_with_the_model_do_not_bend_the_distribution(model: Any, tokenizer: Any) -> None:
    requests = make_requests(8, seed=10)
    plain = all_replies(TransformersPolicy(model, tokenizer, PolicySettings()), requests)
    model.generation_config.update(repetition_penalty=2.0, top_k=1, do_sample=True, temperature=0.1, eos_token_id=[3])
    assert all_replies(TransformersPolicy(model, tokenizer, PolicySettings()), requests) == plain


def test_every_end_token_of_the_model_ends_a_turn(model: Any, tokenizer: Any) -> None:
    end = tokenizer.convert_tokens_to_ids("fridge 1")
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, end]
    replies = all_replies(
        TransformersPolicy(model, tokenizer, PolicySettings()), make_requests(48, seed=11, max_tokens=40)
    )
    assert any(reply.token_ids[-1] == end and reply.stop is StopReason.STOP for reply in replies)
    assert all(end not in reply.token_ids[:-1] for reply in replies)


def test_a_long_prompt_is_an_error_with_its_length_and_the_setting(model: Any, tokenizer: Any) -> None:
    policy = TransformersPolicy(model, tokenizer, PolicySettings(max_prompt_tokens=4))
    with refusal(1, ("5 tokens", "policy.max_prompt_tokens")):
        all_replies(policy, [make_request("go to the fridge")])
    assert all_replies(policy, [make_request("go to fridge 1")])[0].prompt_tokens == 4


def test_a_model_without_an_end_token_is_refused(model: Any, tokenizer: Any) -> None:
    model.generation_config.eos_token_id = None
    endless = copy.deepcopy(tokenizer)
    endless.eos_token = None
    refused(lambda: TransformersPolicy(model, endless, PolicySettings()), names="eos")


def test_seconds_grow_and_close_ends_the_thread(policy: TransformersPolicy) -> None:
    all_replies(policy, [make_request("open fridge 1")])
    assert 0 < policy.seconds < 60
    asyncio.run(policy.close())
    with pytest.raises(RuntimeError):
        all_replies(policy, [make_request("open fridge 2")])


def test_an_adapter_is_sampled_from_without_its_bases_sampling_settings(model: Any, tokenizer: Any) -> None:
    model.generation_config.update(repetition_penalty=2.0)
    torch.manual_seed(2)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    request = make_request("open fridge 1", 3)
    (reply,) = all_replies(TransformersPolicy(adapted, tokenizer, PolicySettings()), [request])
    prompt = prompt_ids(tokenizer, request.prompt)
    with torch.inference_mode():
        logits = adapted(torch.tensor([[*prompt, *reply.token_ids]])).logits[0, len(prompt) - 1 : -1]
        with adapted.disable_adapter():
            bare = adapted(torch.tensor([[*prompt, *reply.token_ids]])).logits[0, len(prompt) - 1 : -1]
    noise = [gumbel(torch.tensor([3]), position, logits.shape[-1])[0] for position in range(len(reply.token_ids))]
    assert tuple((logits + torch.stack(noise)).argmax(-1).tolist()) == reply.token_ids
    assert not torch.allclose(logits, bare, atol=1e-3)
