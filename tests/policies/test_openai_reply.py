"""What a server sends is read or refused as malformed; nothing else can happen."""

import json
import math
from typing import Any

import pytest
from agentcli.policies.endpoint import Malformed
from agentcli.policies.openai import read_models, read_reply
from chat_server import completion
from hypothesis import given, settings
from hypothesis import strategies as st

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
WHOLE: dict[str, Any] = completion("hi").body


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, part in inner for found in [(*way, key), *places(part, (*way, key))]]


@settings(max_examples=400)
@given(st.sampled_from(places(WHOLE)), VALUES)
def test_an_answer_with_one_value_changed_is_sound_or_malformed(way: tuple[Any, ...], value: Any) -> None:
    body = json.loads(json.dumps(WHOLE))
    place = body
    for key in way[:-1]:
        place = place[key]
    place[way[-1]] = value
    try:
        reply = read_reply(json.dumps(body).encode()).reply
    except Malformed:
        return
    assert len(reply.token_ids) == len(reply.logprobs)
    assert all(0 <= token < 2**31 for token in reply.token_ids)
    assert all(math.isfinite(logprob) and logprob <= 1e-6 for logprob in reply.logprobs)
    assert 0 <= reply.prompt_tokens <= 1_000_000_000
    assert 0 <= reply.generated_tokens <= 1_000_000_000


@given(st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_bytes_that_are_no_answer_are_malformed(data: bytes) -> None:
    for read in (read_reply, read_models):
        with pytest.raises(Malformed):
            read(data)


@given(st.integers(0, 200))
def test_an_answer_that_is_cut_anywhere_is_malformed(length: int) -> None:
    data = completion("hi").data
    with pytest.raises(Malformed):
        read_reply(data[: min(length, len(data) - 1)])
