"""Turns a user message into the tokens that a chat model expects.

Sampling, sft and train all use it. Training must use the same tokens as sampling, so no
other code applies a chat template. Text from an environment must not be able to act as
the model: strings that the tokenizer would read as control tokens are broken up first.
"""

import re
from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import Any

from agentcli.errors import UsageError

TAG = re.compile(r"</?\w+>")
"""A tag like <think>, which responses hold as well."""
CLOCK = re.compile(r"""\bstrftime_now\(\s*(["'])(.*?)\1\s*\)""")
"""What writes the day's date in a chat template."""
DAY = date(2025, 1, 1)
"""The date that is written instead, since a prompt is made again for training."""


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
        **template_kwargs(tokenizer),
    )
    return ids


def rendered(tokenizer: Any, prompt: str, response: str | None = None) -> str:
    """A conversation as text; without a response, up to the start of the model's turn."""
    text: str = tokenizer.apply_chat_template(
        messages(tokenizer, prompt, response),
        add_generation_prompt=response is None,
        tokenize=False,
        **template_kwargs(tokenizer),
    )
    return text


def step_ids(tokenizer: Any, prompt: str, response: str) -> list[int]:
    """Token ids of a user message and its complete answer."""
    ids: list[int] = tokenizer.apply_chat_template(
        messages(tokenizer, prompt, response),
        tokenize=True,
        return_dict=False,
        **template_kwargs(tokenizer),
    )
    return ids


def set_template_kwargs(
    tokenizer: Any, model: str, given: Mapping[str, Any] | None
) -> None:
    """Gives the chat template these values (policy.chat_template_kwargs).

    Raises UsageError for a name that the template does not mention: jinja would ignore
    it.
    """
    for name in given or {}:
        if not mentions(tokenizer, name):
            raise UsageError(
                f"policy.chat_template_kwargs.{name}: the chat template of {model} "
                "does not mention it; leave it out, or name another --model"
            )
    tokenizer.chat_template_kwargs = dict(given or {})


def stop_clock(tokenizer: Any) -> None:
    """Lets a chat template that writes the date write DAY, today and tomorrow."""
    if isinstance(tokenizer.chat_template, str):
        tokenizer.chat_template = CLOCK.sub(
            lambda call: repr(DAY.strftime(call[2])), tokenizer.chat_template
        )


def template_kwargs(tokenizer: Any) -> dict[str, Any]:
    """The values that were set for the chat template."""
    values: dict[str, Any] = getattr(tokenizer, "chat_template_kwargs", {})
    return values


def mentions(tokenizer: Any, name: str) -> bool:
    """Whether the source of the chat template mentions a variable."""
    source = str(tokenizer.chat_template)
    return re.search(rf"\b{re.escape(name)}\b", source) is not None


def plain(tokenizer: Any, text: str) -> str:
    """Inserts a space into every string that the tokenizer reads as a control token.

    One of a single character becomes a space.
    """
    return _control(tokenizer).sub(_broken, text)


def _broken(token: re.Match[str]) -> str:
    first, rest = token[0][0], token[0][1:]
    return f"{first} {rest}" if rest else " "


@lru_cache(maxsize=8)
def _control(tokenizer: Any) -> re.Pattern[str]:
    """Matches every control token of the tokenizer, or of its chat template."""
    source = str(tokenizer.chat_template)
    tokens: set[str] = set(tokenizer.all_special_tokens)
    for token in tokenizer.added_tokens_decoder.values():
        # Some control tokens are not marked as special; a tag may be the model's to write.
        in_template = str(token) in source and TAG.fullmatch(str(token)) is None
        if token.special or in_template:
            tokens.add(str(token))
    tokens.discard("")
    # An alternative that begins another one would otherwise match in its place.
    longest_first = sorted(tokens, key=len, reverse=True)
    alternatives = "|".join(map(re.escape, longest_first))
    return re.compile(alternatives or r"(?!)")
