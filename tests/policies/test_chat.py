"""One function turns a message into tokens; control tokens in a message are only words."""

import copy
from typing import Any

from agentcli.policies.chat import messages, plain, prompt_ids


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
