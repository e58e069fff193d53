"""Turns a user message into the tokens that a chat model expects.

Sampling, sft and train all use it. Training must use the same tokens as sampling, so no
other code applies a chat template. Text from an environment must not be able to act as
the model: strings that the tokenizer would read as control tokens are broken up first.
"""

import re
from functools import lru_cache
from typing import Any


def messages(
    tokenizer: Any,
    prompt: str,
    response: str | None = None,
) -> list[dict[str, str]]:
    """The conversation of one step, with control tokens broken up."""
    turns = [{"role": "user", "content": plain(tokenizer, prompt)}]
    if response is not None:
        turns.append({"role": "assistant", "content": plain(tokenizer, response)})
    return turns


def prompt_ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids of the user message `text`, up to the start of the model's turn."""
    ids: list[int] = tokenizer.apply_chat_template(
        messages(tokenizer, text),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    return ids


def step_ids(tokenizer: Any, prompt: str, response: str) -> list[int]:
    """Token ids of a user message and its complete answer."""
    ids: list[int] = tokenizer.apply_chat_template(
        messages(tokenizer, prompt, response), tokenize=True, return_dict=False
    )
    return ids


def plain(tokenizer: Any, text: str) -> str:
    """Inserts a space into every string that the tokenizer reads as a control token."""
    return _control(tokenizer).sub(_broken_up, text)


def _broken_up(token: re.Match[str]) -> str:
    """The text of the token with a space after its first character."""
    return f"{token[0][0]} {token[0][1:]}"


@lru_cache(maxsize=8)
def _control(tokenizer: Any) -> re.Pattern[str]:
    """Matches every control token of the tokenizer."""
    tokens: set[str] = set(tokenizer.all_special_tokens)
    for token in tokenizer.added_tokens_decoder.values():
        if token.special:
            tokens.add(str(token))
    tokens.discard("")
    longest_first = sorted(tokens, key=len, reverse=True)
    alternatives = "|".join(map(re.escape, longest_first))
    return re.compile(alternatives or r"(?!)")
