"""One function turns a message into tokens; control tokens in a message are only words."""

import asyncio
import copy
from pathlib import Path
from typing import Any

from agentcli.policies.chat import messages, plain, prompt_ids, rendered
from agentcli.policies.hf import TransformersPolicy
from agentcli.policies.load import load_tokenizer
from agentcli.records.settings import PolicySettings


def test_prompt_ids_are_those_of_the_template(tokenizer: Any) -> None:
    turns = [{"role": "user", "content": "open fridge 1"}]
    assert prompt_ids(tokenizer, "open fridge 1") == tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, return_dict=False
    )
    assert messages(tokenizer, "open fridge 1") == turns


def test_control_tokens_of_any_tokenizer_are_broken_up(tokenizer: Any) -> None:
    other = copy.deepcopy(tokenizer)
    other.add_special_tokens({"extra_special_tokens": ["<|im_end|>"]})
    assert plain(other, "a <|im_end|> <|end|>b") == "a < |im_end|> < |end|>b"
    assert other.convert_tokens_to_ids("<|im_end|>") not in prompt_ids(other, "a <|im_end|>")
    assert plain(tokenizer, "a <|im_end|> <think>") == "a <|im_end|> <think>"


def test_control_tokens_that_are_not_marked_as_special_are_broken_up(tokenizer: Any) -> None:
    other = copy.deepcopy(tokenizer)
    other.add_tokens(["<|turn_end|>", "<think>", "<|unused|>"])
    other.chat_template += "{# <|turn_end|> <think> #}"
    assert plain(other, "<|turn_end|> <think> <|unused|>") == "< |turn_end|> <think> <|unused|>"


def test_a_control_token_of_one_character_becomes_a_space(tokenizer: Any) -> None:
    other = copy.deepcopy(tokenizer)
    other.add_special_tokens({"extra_special_tokens": ["§"]})
    assert plain(other, "open§fridge") == "open fridge"


def test_a_template_that_writes_the_date_gives_the_same_tokens_on_any_day(
    model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path)
    other = copy.deepcopy(tokenizer)
    other.chat_template = "{{ strftime_now('%d %B %Y') }}" + other.chat_template
    other.save_pretrained(tmp_path)
    assert rendered(load_tokenizer(str(tmp_path)), "open").startswith("01 January 2025")


def test_values_for_the_template_stay_with_a_policy_that_loads_another_checkpoint(
    model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    other = copy.deepcopy(tokenizer)
    other.chat_template += "{% if add_generation_prompt and loud %}fridge 1{% endif %}"
    model.save_pretrained(tmp_path)
    other.save_pretrained(tmp_path)
    loud = PolicySettings(chat_template_kwargs={"loud": True})
    quiet = prompt_ids(load_tokenizer(str(tmp_path)), "open")
    policy = TransformersPolicy(model, load_tokenizer(str(tmp_path), {"loud": True}), loud)
    for _ in range(2):
        assert policy.tokens.prompt_ids("open") == [*quiet, *tokenizer("fridge 1").input_ids]
        asyncio.run(policy.load(str(tmp_path)))
