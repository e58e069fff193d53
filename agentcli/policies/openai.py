"""The openai policy: a model behind any server that speaks /chat/completions.

The prompt is sent as text, and the server applies its chat template. Requests ask for
sampling from the plain softmax (top_p 1, top_k -1, ...), because servers otherwise
apply the model's generation_config.json. Until the server has answered once, optional
fields that it refuses by name are dropped one by one. The consequences are reported
once.

Token ids and log-probabilities come from servers that give both (vLLM:
return_token_ids). Log-probabilities are assumed to be from before tempering, as vLLM
(--logprobs-mode raw_logprobs) and OpenAI return them. If a server returns those of the
sampled distribution, set `policy.endpoint.logprobs`. Whether equal seeds give equal
responses depends on the server. Token ids and log-probabilities are kept only if both
are there, one of each for every token: a training row needs both.

A failing request ends in one of two ways. Once the endpoint has answered, it is a
PolicyError: an errored leaf, which --resume plays again. Before that, and after
FAILURES_IN_A_ROW failures without an answer in between, it is a MissingError that ends
the command. If the server says that the prompt does not fit the model's context, it is
a PromptTooLongError: the prompt is at fault, not the endpoint.
"""

import asyncio
import logging
import os
import re
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec

from agentcli.errors import (
    SHORTEN,
    MissingError,
    PolicyError,
    PromptTooLongError,
    UsageError,
)
from agentcli.policies.chat_tokens import refuse_long_prompt
from agentcli.policies.endpoint import Endpoint, Malformed, RequestFailed
from agentcli.policies.protocol import Reply, Request, Waiting
from agentcli.prompts import native
from agentcli.prompts.protocol import Message
from agentcli.records.faults import UNREADABLE
from agentcli.records.settings import PolicySettings
from agentcli.records.types import StopReason

FAILURES_IN_A_ROW = 16
CHAT = "/chat/completions"
MODELS = "/models"

THEIR_DEFAULT = (
    "the server's own default applies, so responses may not be drawn from the plain "
    "softmax"
)
NOT_TRAINABLE = "agentcli train cannot learn from its responses"
OPTIONAL = {
    "return_token_ids": (True, NOT_TRAINABLE),
    "logprobs": (True, NOT_TRAINABLE),
    "top_k": (-1, THEIR_DEFAULT),
    "min_p": (0.0, THEIR_DEFAULT),
    "repetition_penalty": (1.0, THEIR_DEFAULT),
    "top_p": (1.0, THEIR_DEFAULT),
    "seed": (None, "equal seeds may give different responses"),
}
"""By field: its value (for seed, the request's), and the consequence of dropping it."""
LENGTH = "max_tokens"
NEW_LENGTH = "max_completion_tokens"
NAMING = frozenset({400, 403, 422})
"""Statuses by which servers refuse a field."""

REFUSING = frozenset({400, 413, 422})
TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|exceeds? the (?:available |maximum )?context",
    re.IGNORECASE,
)
"""How servers refuse a prompt that does not fit their context: OpenAI's code, and texts
of vLLM and llama.cpp.
"""

CONTROL = re.compile(
    r"<(?=\|[^|<>\s]{1,64}\|>|｜[^｜<>\s]{1,64}｜>|\|turn>|turn\|>"
    r"|/?(?:s|bos|eos|sop|pad|unk|(?:start|end)_of_turn)>)"
    r"|\[(?=/?(?:INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|SYSTEM_PROMPT|gMASK)\])"
)
"""The beginnings of control tokens: of ChatML, Llama 3 and Phi; DeepSeek; Llama 2,
Mistral, Gemma and GLM. The server's own tokenizer is not known here.
"""

log = logging.getLogger(__name__)


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


class OpenAIPolicy(Waiting):
    """Asks `settings.model` at `settings.endpoint`, or the endpoint's only model.

    `key` may be None. `clock` and `sleep` are for tests. Raises UsageError for an
    invalid base URL or key.
    """

    def __init__(
        self,
        settings: PolicySettings,
        key: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._model = settings.model
        self._has_key = key is not None
        self._endpoint = Endpoint(settings.endpoint, key, clock, sleep)
        self._extras = {name: value for name, (value, _) in OPTIONAL.items()}
        self._length = LENGTH
        self._first = asyncio.Lock()
        """Held by the first request: the others wait until it has found out what the
        server supports.
        """
        self._answered = False
        self._reports: set[str] = set()
        self._failures = 0
        """Number of failed requests in a row."""
        self._stopped = ""
        """Why no more requests are sent; "" while they are."""

    async def respond(self, request: Request) -> Reply:
        """Samples one response.

        Raises PolicyError and MissingError as described in the module, and PolicyError
        for a response that a content filter withheld. PromptTooLongError is also raised
        for a prompt longer than policy.max_prompt_tokens, if the server counts tokens.
        UsageError if no model is named and the endpoint does not have exactly one.
        """
        with self.waiting():
            if not self._answered:
                async with self._first:
                    # While this request waited, another one may have got the first
                    # answer.
                    if not self._answered:
                        return self._accepted(await self._begin(request), request)
            return self._accepted(await self._go_on(request), request)

    async def close(self) -> None:
        await self._endpoint.close()

    async def _begin(self, request: Request) -> ServedReply:
        """Sends the first request, while no other is sent.

        It determines the model's name and which fields the server supports.
        """
        self._check_stopped()
        try:
            if self._model is None:
                self._model = await self._only_model()
            while True:
                try:
                    answer = await self._ask(request)
                    break
                except RequestFailed as failure:
                    if not self._without_refused_field(failure):
                        raise
        except RequestFailed as failure:
            raise self._stop(f"{failure}; {self._hint(failure)}") from failure
        self._answered = True
        return answer

    async def _go_on(self, request: Request) -> ServedReply:
        """Sends a later request, and stops the policy after too many failures."""
        self._check_stopped()
        try:
            answer = await self._ask(request)
        except RequestFailed as failure:
            self._failures += 1
            if self._failures >= FAILURES_IN_A_ROW:
                advice = "go on with --resume when the endpoint answers"
                raise self._stop(
                    f"{failure}; the last {self._failures} requests failed: {advice}"
                ) from failure
            raise
        self._failures = 0
        return answer

    async def _ask(self, request: Request) -> ServedReply:
        try:
            body = msgspec.json.encode(self._body(request))
            read = partial(read_reply, calls=bool(opening_of(request).tools))
            return await self._endpoint.ask(CHAT, read, body, request.seed)
        except RequestFailed as failure:
            if failure.status in REFUSING and TOO_LONG.search(failure.text):
                raise PromptTooLongError(f"{failure}; {SHORTEN}") from failure
            raise

    def _body(self, request: Request) -> dict[str, Any]:
        extras: dict[str, Any] = dict(self._extras)
        if "seed" in extras:
            extras["seed"] = request.seed % 2**31
        if self._settings.chat_template_kwargs:
            # Never dropped: another prompt would be another policy.
            extras["chat_template_kwargs"] = self._settings.chat_template_kwargs
        tools = opening_of(request).tools
        if tools:
            extras["tools"] = msgspec.json.decode(tools)
        return {
            "model": self._model,
            "messages": conversation(request),
            "temperature": request.temperature,
            self._length: request.max_tokens,
            **extras,
        }

    def _accepted(self, answer: ServedReply, request: Request) -> Reply:
        """Returns the reply unless the settings or a filter forbid it.

        Anything that the server does not provide is reported once.
        """
        reply = answer.reply
        refuse_long_prompt(reply.prompt_tokens, self._settings.max_prompt_tokens)
        if answer.withheld:
            raise PolicyError(
                f"{self._endpoint.url}: a content filter withheld the response"
            )
        if reply.text and not answer.token_ids:
            self._report_once(f"gives no token ids: {NOT_TRAINABLE}")
        if reply.text and not answer.logprobs:
            self._report_once(f"gives no log-probabilities: {NOT_TRAINABLE}")
        if answer.split:
            self._report_once(
                "takes reasoning out of the text, <think> included; start it without "
                "a reasoning parser, or responses will be malformed"
            )
        text = reply.text
        before, ended, _ = text.partition(native.THOUGHT)
        if ended and native.THINK not in before:
            self._report_once(
                "ends reasoning that no response begins: its chat template opens "
                f"{native.THINK} in the prompt, and here it is put before the response"
            )
            text = native.THINK + text
        # A greedy response has no tempered distribution.
        tempered = (
            self._settings.endpoint.logprobs == "processed"
            and reply.logprobs
            and request.temperature > 0
        )
        stored = request.temperature if tempered else 1.0
        return msgspec.structs.replace(
            reply,
            text=text,
            temperature=request.temperature,
            logprob_temperature=stored,
        )

    async def _only_model(self) -> str:
        """The name of the only served model. Raises UsageError if there are several."""
        url = f"{self._endpoint.url}{MODELS}"
        try:
            names = await self._endpoint.ask(MODELS, read_models)
        except RequestFailed as failure:
            # The server has no list of models. That is not a fault: it only has to be
            # told which one to use.
            if failure.status in (404, 405, 501):
                raise UsageError(
                    f"policy.model is not set and {url} lists none; name one with "
                    "--model NAME"
                ) from failure
            raise
        if len(names) != 1:
            listed = ", ".join(names[:20]) or "no model"
            raise UsageError(
                f"policy.model is not set and {url} lists {listed}; name one with "
                "--model NAME"
            )
        return names[0]

    def _without_refused_field(self, failure: RequestFailed) -> bool:
        """Drops the first optional field that a refusal names; False if it names none.

        Raises UsageError if processed log-probabilities would be meaningless without
        it.
        """
        if failure.status not in NAMING:
            return False
        # OpenAI's newer models refuse the old name of the length limit and name the new
        # one.
        if self._length == LENGTH and NEW_LENGTH in failure.text:
            self._length = NEW_LENGTH
            return True
        for name in self._extras:
            if re.search(rf"\b{name}\b", failure.text):
                self._check_processed(name)
                del self._extras[name]
                self._report_once(f"does not take {name}: {OPTIONAL[name][1]}")
                return True
        return False

    def _check_processed(self, name: str) -> None:
        """Refuses processed log-probabilities that the server's `name` may change."""
        processed = self._settings.endpoint.logprobs == "processed"
        if processed and OPTIONAL[name][1] == THEIR_DEFAULT:
            raise UsageError(
                f"{self._endpoint.url} does not take {name}, so its processed "
                "log-probabilities need not be those of softmax(logits / temperature); "
                "use a server that takes it, or policy.endpoint.logprobs=raw with "
                "--temperature 1"
            )

    def _hint(self, failure: RequestFailed) -> str:
        """The advice for a failure before the first answer."""
        variable = self._settings.endpoint.api_key_variable
        if failure.status in (401, 403) and self._has_key:
            return f"the key in {variable} is refused"
        if failure.status in (401, 403):
            return f"put a key into the variable {variable}"
        if failure.status == 404:
            return "check --base-url (it often ends in /v1) and --model"
        if failure.status is None:
            return "start the server, or name another with --base-url"
        return (
            "it has answered no request yet: check --base-url, --model and the "
            "policy settings"
        )

    def _stop(self, reason: str) -> MissingError:
        self._stopped = reason
        return MissingError(reason)

    def _check_stopped(self) -> None:
        if self._stopped:
            raise MissingError(self._stopped)

    def _report_once(self, text: str) -> None:
        # Training does not use what a judge says.
        if NOT_TRAINABLE in text and not self._settings.trained:
            return
        if text not in self._reports:
            self._reports.add(text)
            log.warning("%s %s", self._endpoint.url, text)


def key_from_environment(variable: str) -> str | None:
    """The key in an environment variable; None if it is empty or not set."""
    return os.environ.get(variable, "").strip() or None


def opening_of(request: Request) -> Message:
    """The message that began a request's conversation."""
    before = request.continued
    return before[0].message if before else request.message


def conversation(request: Request) -> list[dict[str, Any]]:
    """The messages of a request in the protocol's form."""
    chat: list[dict[str, Any]] = []
    system = opening_of(request).system
    if system:
        chat.append({"role": "system", "content": plain(system)})
    messages = [turn.message for turn in request.continued[1:]] + [request.message]
    chat.append({"role": "user", "content": content(opening_of(request))})
    for number, turn in enumerate(request.continued):
        following = messages[number]
        thought, calls = native.split_calls(turn.response)
        call = native.read_native(calls[0]) if len(calls) == 1 else None
        if following.role == "tool" and call is not None:
            chat += called(thought, call, content(following), f"call_{number}")
        else:
            chat.append({"role": "assistant", "content": plain(turn.response)})
            chat.append({"role": "user", "content": content(following)})
    return chat


def called(
    thought: str, call: native.NativeCall, result: str | list[dict[str, Any]], name: str
) -> list[dict[str, Any]]:
    """A response with one call, and what the call returned, as two messages."""
    arguments = plain(msgspec.json.encode(call.arguments or call.parameters).decode())
    function = {"name": call.name, "arguments": arguments}
    tool_call = {"id": name, "type": "function", "function": function}
    answer = {"role": "assistant", "content": plain(thought), "tool_calls": [tool_call]}
    return [answer, {"role": "tool", "tool_call_id": name, "content": result}]


def content(message: Message) -> str | list[dict[str, Any]]:
    """A message in the protocol's form: a text, or parts with pictures as data URLs."""
    if not message.pictures:
        return plain(message.text)
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, str):
            parts.append({"type": "text", "text": plain(part)})
        else:
            url = f"data:image/png;base64,{b64encode(part.png).decode()}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
    return parts


def plain(text: str) -> str:
    """Breaks up control tokens such as <|im_end|>, as `chat.plain` does.

    Text from an environment must not be able to act as the model.
    """
    return CONTROL.sub(r"\g<0> ", text)


T = TypeVar("T")
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Logprob = Annotated[float, msgspec.Meta(ge=-1e6, le=1e-6)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]

STOPS = {
    "stop": StopReason.STOP,
    "eos_token": StopReason.STOP,
    "tool_calls": StopReason.STOP,
    "length": StopReason.LENGTH,
}
"""Why a response ended, by finish_reason. text-generation-inference says eos_token."""
WITHHELD = "content_filter"


class _Function(msgspec.Struct):
    name: str
    arguments: Any = None


class _ToolCall(msgspec.Struct):
    function: _Function


class _ChatMessage(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None
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


def read_reply(data: bytes, calls: bool = False) -> ServedReply:
    """Reads the first choice of a chat completion.

    With `calls`, its tool calls become a part of the text, as Hermes writes them.

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
        # As all policies round, so that records are equal byte for byte.
        logprobs = [round(token.logprob, 6) for token in choice.logprobs.content or []]
    if ids and logprobs and len(ids) != len(logprobs):
        raise Malformed(f"{len(logprobs)} logprobs for {len(ids)} token_ids")
    # One without the other is no row to train on.
    paired = bool(ids and logprobs)
    message = choice.message
    reply = Reply(
        text=_with_calls(message) if calls else message.content or "",
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


def _with_calls(message: _ChatMessage) -> str:
    """The text of a message, followed by its tool calls."""
    parts = [message.content] if message.content else []
    if parts and native.THINK in parts[0] and native.THOUGHT not in parts[0]:
        # The calls are apart from the thought, though it did not end.
        parts.append(native.THOUGHT)
    for call in message.tool_calls or []:
        # Text that is no JSON stays as it is, for the dialect to find wrong.
        arguments: Any = call.function.arguments
        if isinstance(arguments, str):
            with suppress(*UNREADABLE):
                arguments = msgspec.json.decode(arguments)
        called = {"name": call.function.name, "arguments": arguments}
        text = msgspec.json.encode(called).decode()
        # A text in it may hold </tool_call>. In JSON a < is always part of a text.
        text = text.replace("<", "\\u003c")
        parts.append(f"{native.CALL}\n{text}\n{native.CALLED}")
    return "\n".join(parts)


def read_models(data: bytes) -> list[str]:
    """Reads the names of the served models. Raises Malformed."""
    return [model.id for model in _decode(data, _Models).data]


def _decode(data: bytes, kind: type[T]) -> T:
    """Decodes the JSON text as this type. Raises Malformed."""
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        raise Malformed(str(error)) from error
