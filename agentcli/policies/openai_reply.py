"""Parses the answers of a chat completions server and checks every field.

Token ids and log-probabilities are kept only if both are there, one of each for every
token: a training row needs both. Fields that are not named here are ignored.
"""

from typing import Annotated, Any, TypeVar

import msgspec

from agentcli.policies.endpoint import Malformed
from agentcli.policies.protocol import Reply
from agentcli.records.types import StopReason

T = TypeVar("T")
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Logprob = Annotated[float, msgspec.Meta(ge=-1e6, le=1e-6)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]

STOPS = {
    "stop": StopReason.STOP,
    "eos_token": StopReason.STOP,
    "length": StopReason.LENGTH,
}
"""Why a response ended, by finish_reason. text-generation-inference says eos_token."""
WITHHELD = "content_filter"


class _ChatMessage(msgspec.Struct):
    content: str | None = None
    reasoning: Any = None
    reasoning_content: Any = None


class _TokenLogprob(msgspec.Struct):
    logprob: Logprob


class _Logprobs(msgspec.Struct):
    content: list[_TokenLogprob] | None = None


class _Choice(msgspec.Struct):
    message: _ChatMessage
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[TokenId] | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None


class _Completion(msgspec.Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: _Usage | None = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class ServedReply(msgspec.Struct, frozen=True):
    """A reply, and what its server did or left out."""

    reply: Reply
    withheld: bool
    """Whether a content filter cut off the response."""
    split: bool
    """Whether the server moved a part of the response out of its text, as reasoning."""
    token_ids: bool
    """Whether the server returned token ids."""
    logprobs: bool
    """Whether the server returned log-probabilities."""


def read_reply(data: bytes) -> ServedReply:
    """Reads the first choice of a chat completion.

    Raises Malformed for another schema, for numbers that are not valid token ids,
    log-probabilities or counts, for lists of unequal length, and if the response ended
    neither by the model nor by the limit.
    """
    completion = _decode(data, _Completion)
    choice = completion.choices[0]
    usage = completion.usage or _Usage()
    withheld = choice.finish_reason == WITHHELD
    if not withheld and choice.finish_reason not in STOPS:
        raise Malformed(f"finish_reason is {choice.finish_reason!r}"[:100])
    ids = choice.token_ids or []
    logprobs = []
    if choice.logprobs is not None:
        logprobs = [round(token.logprob, 6) for token in choice.logprobs.content or []]
    if ids and logprobs and len(ids) != len(logprobs):
        raise Malformed(f"{len(logprobs)} logprobs for {len(ids)} token_ids")
    paired = bool(ids and logprobs)
    message = choice.message
    reply = Reply(
        text=message.content or "",
        token_ids=tuple(ids) if paired else (),
        logprobs=tuple(logprobs) if paired else (),
        prompt_tokens=usage.prompt_tokens or 0,
        generated_tokens=len(ids) or usage.completion_tokens or 0,
        stop=STOPS.get(choice.finish_reason or "", StopReason.STOP),
    )
    return ServedReply(
        reply=reply,
        withheld=withheld,
        split=bool(message.reasoning or message.reasoning_content),
        token_ids=bool(ids),
        logprobs=bool(logprobs),
    )


def read_models(data: bytes) -> list[str]:
    """Reads the names of the served models. Raises Malformed."""
    return [model.id for model in _decode(data, _Models).data]


def _decode(data: bytes, kind: type[T]) -> T:
    """Decodes the JSON text as this type. Raises Malformed."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(str(error)) from error
