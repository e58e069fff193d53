"""The tokens of a chat model's prompts and responses, for any inference backend."""

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from agentcli.errors import SHORTEN, PromptTooLongError, UsageError
from agentcli.policies.chat import mentions, plain, prompt_ids, rendered
from agentcli.policies.conversation import Conversations, until_end
from agentcli.policies.load import adapter_base
from agentcli.policies.protocol import UNSEEN, Reply, Request
from agentcli.prompts.protocol import Exchange, Message
from agentcli.records.types import StopReason

if TYPE_CHECKING:
    from agentcli.policies.sight import Eyesight

PROMPTS_REMEMBERED = 4096
"""Prompts whose tokens are cached: siblings and revisited states repeat a prompt."""
THOUGHT = "<think>"
"""The tag that the templates of reasoning models open in the prompt itself."""
EXAMPLE = "done."
"""An answer in whose place a template is asked what follows an answer."""


class Prompted(msgspec.Struct, frozen=True):
    """A request with its prompt as tokens."""

    prompt: list[int]
    seed: int
    temperature: float
    max_tokens: int
    message: Message | None = None
    """The message, for a vision model."""
    grows: bool = False
    """Whether it is part of a conversation, which may go on."""
    run_before: int = 0
    """The number of its first tokens that were run for the step before."""

    @property
    def pictures(self) -> int:
        """The number of its pictures."""
        return len(self.message.pictures) if self.message is not None else 0


class ChatTokens:
    """Turns requests into token ids, sampled ids into replies, and texts into responses.

    A template may open the reasoning in the prompt (`<think>`). The model's answer then
    lacks its opening tag, so the tag is put before the text of a reply, and left out of
    a response that is to be learned.

    `configured_ends` is the eos_token_id of a generation config; without `sight`,
    messages with pictures are refused. Raises UsageError if neither the config nor the
    tokenizer names an end-of-turn token.
    """

    def __init__(
        self,
        tokenizer: Any,
        configured_ends: Any,
        max_prompt_tokens: int,
        sight: "Eyesight | None" = None,
    ) -> None:
        self.sight = sight
        self.ends = _end_tokens(tokenizer, configured_ends)
        self._rendered = (
            partial(rendered, tokenizer) if sight is None else sight.rendered
        )
        self._plain = partial(plain, tokenizer) if sight is None else sight.plain
        opened = re.search(rf"{THOUGHT}\s*\Z", self._rendered(EXAMPLE))
        self.opened = opened[0] if opened else ""
        """The end of every prompt, if it opens the reasoning."""
        self.prompt_ids = lru_cache(PROMPTS_REMEMBERED)(partial(prompt_ids, tokenizer))
        self._conversations = Conversations(tokenizer, self.ends, self.spoken_ids)
        self._tokenizer = tokenizer
        self._max_prompt_tokens = max_prompt_tokens

    def prompted(self, request: Request) -> Prompted:
        """The request with its prompt as tokens.

        Raises PromptTooLongError if it is longer than policy.max_prompt_tokens.
        """
        message = request.message
        prompt = self.ids(message, request.continued)
        refuse_long_prompt(len(prompt), self._max_prompt_tokens)
        run_before = 0
        if message.continues in ("exact", "sampled"):
            # The last token that was sampled was not run.
            run_before = len(self._said(request)) - 1
        return Prompted(
            prompt,
            request.seed,
            request.temperature,
            request.max_tokens,
            message=None if self.sight is None else message,
            grows=message.in_chat,
            run_before=run_before,
        )

    def ids(self, message: Message, turns: Sequence[Exchange] = ()) -> list[int]:
        """Token ids of a message, after earlier turns, up to the model's turn.

        Raises UsageError for pictures that the model cannot read, and for a
        conversation that does not grow.
        """
        if self.sight is not None:
            if message.in_chat:
                raise UsageError(
                    "prompt.style chat: this model reads pictures, and its processor "
                    "holds no conversation; choose another style"
                )
            return self.sight.prompt_ids(message)
        if message.pictures:
            raise UsageError(UNSEEN)
        if message.in_chat:
            return self._conversations.ids(message, turns)
        return self.prompt_ids(message.text)

    def answer_ids(self, answer: str) -> list[int]:
        """The response with this text, up to and including its end-of-turn token.

        Raises UsageError for a chat template that does not end the assistant's turn.
        """
        return [*self.spoken_ids(answer), *self._closing]

    def spoken_ids(self, answer: str) -> list[int]:
        """The response with this text, without what ends it."""
        text = self._plain(answer)
        if self.opened:
            text = text.removeprefix(THOUGHT).lstrip()
        ids: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        return ids

    @cached_property
    def _closing(self) -> list[int]:
        """What the template writes after an answer, through the end-of-turn token.

        Only the text after the answer is used: a template may move or add reasoning.
        """
        _, _, text = self._rendered(EXAMPLE, EXAMPLE).rpartition(EXAMPLE)
        ids = self._tokenizer(text, add_special_tokens=False).input_ids
        closing = self.until_end(ids)
        if not closing or closing[-1] not in self.ends:
            raise UsageError(
                f"{self._tokenizer.name_or_path}: its chat template does not end the "
                "assistant's turn with the eos token; change chat_template.jinja or use "
                "another model"
            )
        return closing

    def mentions(self, name: str) -> bool:
        """Whether the chat template mentions a variable."""
        return mentions(self._tokenizer, name)

    def text(self, response: Sequence[int]) -> str:
        """The text of a response, as it is read; without the end-of-turn token."""
        bare = response[:-1] if response[-1] in self.ends else response
        text: str = self._tokenizer.decode(bare, skip_special_tokens=True)
        return self.opened + text

    def until_end(self, tokens: Sequence[int]) -> list[int]:
        """The response up to and including its end-of-turn token."""
        return until_end(tokens, self.ends)

    def reply(
        self, item: Prompted, response: Sequence[int], logprobs: Sequence[float]
    ) -> Reply:
        """The reply to a request.

        `logprobs` are those of softmax(logits / T), or at T = 1 for a greedy response.
        """
        ended = response[-1] in self.ends
        return Reply(
            text=self.text(response),
            token_ids=tuple(response),
            logprobs=tuple(logprobs),
            temperature=item.temperature,
            logprob_temperature=item.temperature or 1.0,
            prompt_tokens=len(item.prompt),
            stop=StopReason.STOP if ended else StopReason.LENGTH,
        )

    def with_shared_tokens(
        self, reply: Reply, item: Prompted, request: Request
    ) -> Reply:
        """The reply with the number of tokens shared with the step before.

        A conversation also shares that step's response.
        """
        if not request.turns:
            return reply
        shared = item.run_before + 1
        if not item.run_before:
            shared = common_prefix(item.prompt, self._said(request))
        return msgspec.structs.replace(reply, shared_prompt_tokens=shared)

    def _said(self, request: Request) -> list[int]:
        """The prompt and the response of the step before, as they were run."""
        *earlier, last = request.turns
        message = last.message
        if self.sight is not None:
            # Texts come before pictures, and a picture hardly ever occurs twice.
            message = Message((message.text,))
        return self.ids(message, earlier) + list(last.token_ids)


def refuse_long_prompt(tokens: int, limit: int) -> None:
    """Raises PromptTooLongError above `limit`, policy.max_prompt_tokens."""
    if tokens > limit:
        raise PromptTooLongError(
            f"the prompt has {tokens} tokens, policy.max_prompt_tokens is {limit}; "
            f"raise it, or {SHORTEN}"
        )


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _end_tokens(tokenizer: Any, configured: Any) -> list[int]:
    """End-of-turn ids from the tokenizer, followed by the generation config's."""
    if not isinstance(configured, list):
        configured = [configured]
    # Some instruct models end a turn with another token than a document, and
    # only one of the two files says so.
    tokens = dict.fromkeys([tokenizer.eos_token_id, *configured])
    ends = [token for token in tokens if token is not None]
    if not ends:
        raise UsageError(
            "policy.model: neither generation_config.json nor the tokenizer names an "
            "eos token; set one there"
        )
    return ends


def configured_ends(model: str) -> Any:
    """The end-of-turn ids in a model's files: an id, a list of ids, or None."""
    from transformers import AutoConfig, GenerationConfig

    source = adapter_base(model) or model
    try:
        return GenerationConfig.from_pretrained(source).eos_token_id
    except OSError:  # there is no generation_config.json
        return AutoConfig.from_pretrained(source).eos_token_id
